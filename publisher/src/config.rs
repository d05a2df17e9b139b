//! The publisher's settings: a TOML file in which nothing is ignored.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use protocol::book::{BooksConfig, Start};
use protocol::channel::ChannelConfig;
use serde::Deserialize;
use transport::udp::{Interface, UdpOptions};

use crate::pace::Pace;

/// Everything a publisher is told.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// What is published, and under which name.
    pub channel: ChannelSection,
    /// Where it comes from.
    pub feed: FeedSection,
    /// The shared-memory ring.
    #[serde(default)]
    pub ring: RingSection,
    /// UDP multicast beside it, if wanted.
    pub udp: Option<UdpSection>,
    /// Where to listen for the channel's other publisher, if that is on another host.
    pub partner: Option<PartnerSection>,
    /// RDMA beside it, if wanted: needs a build with the feature `rdma`.
    pub rdma: Option<RdmaSection>,
    /// The control channel, if subscribers are to ask what there is.
    pub control: Option<ControlSection>,
    /// The recovery server, if subscribers are to get what they lost: needs `[control]`.
    pub recovery: Option<RecoverySection>,
    /// How the loop runs.
    #[serde(default)]
    pub run: RunSection,
    /// How much room is made for books.
    #[serde(default)]
    pub books: BooksSection,
}

/// `[channel]`
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChannelSection {
    /// The name subscribers ask for: letters, digits, `-`, `_` and `.`; at most 64.
    pub name: String,
    /// The number that packets carry.
    #[serde(default = "one")]
    pub id: u16,
    /// Which path of the channel this publisher is: 0 is the A line, 1 the B line.
    #[serde(default)]
    pub lane: u16,
}

/// `[feed]`
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FeedSection {
    /// The capture: BinaryFILE of ITCH 5.0, plain or gzip.
    pub path: PathBuf,
    /// The session's date, `YYYY-MM-DD`, or `none`. Left out: from the file's name.
    pub date: Option<String>,
    /// `{ speed = 1.0 }` as captured, times the number; `{ rate = 100000.0 }` messages a second; or `"max"`.
    #[serde(default = "as_captured")]
    pub pace: Pace,
    /// `"strict"`: books are Unknown until a snapshot, a Clear or the start of day. `"natural"`: built from increments.
    #[serde(default)]
    pub start: StartSetting,
    /// Take a capture that is cut off for one that ends there.
    #[serde(default)]
    pub lenient: bool,
    /// Carry market participant positions too.
    #[serde(default)]
    pub full: bool,
    /// Which MoldUDP64 session to follow, where a packet capture has several side by side; left out: the first.
    pub session: Option<String>,
    /// The market, by its identifier code: `XNAS`, `XBOS` or `XPSX`.
    #[serde(default = "nasdaq")]
    pub market: String,
}

/// `start` of `[feed]`
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartSetting {
    /// See [`Start::Strict`].
    #[default]
    Strict,
    /// See [`Start::Natural`].
    Natural,
}

impl From<StartSetting> for Start {
    fn from(setting: StartSetting) -> Start {
        match setting {
            StartSetting::Strict => Start::Strict,
            StartSetting::Natural => Start::Natural,
        }
    }
}

/// `[ring]`
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RingSection {
    /// Lines: a power of two. 65,536 lines are 4 MiB.
    pub lines: usize,
    /// The folder for the ring's file; left out: `/dev/shm`.
    pub directory: Option<PathBuf>,
}

impl Default for RingSection {
    fn default() -> RingSection {
        RingSection { lines: 1 << 16, directory: None }
    }
}

/// `[udp]`
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UdpSection {
    /// Multicast group.
    pub group: Ipv4Addr,
    /// Port.
    pub port: u16,
    /// The interface to send from, by name or IPv4 address.
    pub interface: String,
    /// Router hops; 0 keeps the traffic on this host.
    #[serde(default = "one_hop")]
    pub ttl: u8,
    /// The path's MTU in bytes: it decides how many lines a packet holds.
    #[serde(default = "ethernet")]
    pub mtu: u32,
}

impl UdpSection {
    /// As the transport takes it.
    pub fn options(&self) -> UdpOptions {
        let Ok(interface) = Interface::from_str(&self.interface);
        let mut options = UdpOptions::new(self.group, self.port, interface);
        options.ttl = self.ttl;
        options.mtu = self.mtu;
        options
    }
}

/// `[partner]`: the UDP multicast of the channel's other publisher. One on this host is found in shared memory.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartnerSection {
    /// The other publisher's multicast group.
    pub group: Ipv4Addr,
    /// Its port.
    pub port: u16,
    /// The interface to listen on, by name or IPv4 address.
    pub interface: String,
    /// How long to listen for a sign of its life before this publisher takes itself for the first, ms.
    #[serde(default = "half_a_second")]
    pub wait_ms: u64,
}

impl PartnerSection {
    /// As the transport takes it.
    pub fn options(&self) -> UdpOptions {
        let Ok(interface) = Interface::from_str(&self.interface);
        UdpOptions::new(self.group, self.port, interface)
    }
}

/// `[rdma]`
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RdmaSection {
    /// The IPv4 address of the port to send from.
    pub address: Ipv4Addr,
    /// The device, such as `mlx5_0`; left out: whichever has the address.
    pub device: Option<String>,
    /// The group that datagrams go to; left out: none are sent.
    pub group: Option<Ipv4Addr>,
    /// The key that datagrams carry on RoCE, below 2^31. It prevents accidents, it is no security.
    #[serde(default = "default_qkey")]
    pub qkey: u32,
    /// How many routers a datagram may pass, itself included.
    #[serde(default = "one_hop")]
    pub hop_limit: u8,
    /// The most subscribers whose rings are written; 0 none.
    #[serde(default = "sixteen")]
    pub subscribers: usize,
    /// Work requests in each send queue: at least 128.
    #[serde(default = "send_depth")]
    pub send_depth: usize,
    /// How long a send may take before its lane, or its subscriber, is given up, ms.
    #[serde(default = "hundred_ms")]
    pub deadline_ms: u64,
}

#[cfg(feature = "rdma")]
impl RdmaSection {
    /// As the lanes take it; `heartbeat_ms` as in `[run]`.
    pub fn options(&self, heartbeat_ms: u64) -> crate::rdma::RdmaOptions {
        crate::rdma::RdmaOptions {
            device: self.device.clone(),
            address: self.address,
            group: self.group,
            qkey: self.qkey,
            hop_limit: self.hop_limit,
            subscribers: self.subscribers,
            send_depth: self.send_depth,
            deadline_ns: self.deadline_ms * 1_000_000,
            heartbeat_ns: heartbeat_ms * 1_000_000,
        }
    }
}

/// `[control]`
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControlSection {
    /// Where subscribers ask, such as `127.0.0.1:31000`; port 0 takes any that is free, and says which.
    pub listen: SocketAddr,
    /// The tokens that subscribers show; each at least 8 characters.
    pub tokens: Vec<String>,
}

/// `[recovery]`
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecoverySection {
    /// Where requests come in and answers leave from, by UDP, such as `10.0.0.1:31001`; port 0 takes any that is free. On a
    /// host with several addresses name the one that subscribers reach: they take answers from nowhere else.
    pub listen: SocketAddrV4,
    /// Lines kept to be sent again: a power of two. 1,048,576 lines are 64 MiB.
    #[serde(default = "history_lines")]
    pub history_lines: usize,
    /// The most lines a second that one subscriber is sent, after at most 8,192 at once.
    #[serde(default = "recovery_rate")]
    pub lines_per_second: u64,
    /// The most subscribers at one time.
    #[serde(default = "recovery_subscribers")]
    pub subscribers: usize,
    /// The path's MTU in bytes: it decides how many lines an answer's packet holds.
    #[serde(default = "ethernet")]
    pub mtu: u32,
    /// Keep how each instrument stands in shared memory too, for readers on this host that want the latest alone: 640 bytes
    /// for each of `[books] instruments`.
    #[serde(default)]
    pub conflate: bool,
    /// The core to pin the server to; left out: not pinned.
    pub core: Option<usize>,
}

/// `[run]`
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunSection {
    /// The core to pin the loop to; left out: not pinned.
    pub core: Option<usize>,
    /// Give the core away when there is nothing to do, instead of spinning.
    pub yield_when_idle: bool,
    /// A sign of life at least this often, ms.
    pub heartbeat_ms: u64,
    /// One book digest after this many venue messages; 0 none. Part of what defines the stream.
    pub digest_every: u32,
    /// Where the channel's epoch is kept.
    pub state_dir: PathBuf,
    /// From the publisher's start to the first line, ms: time for subscribers to find it.
    pub lead_ms: u64,
    /// How long the end of the stream is announced before the ring goes away, ms.
    pub linger_ms: u64,
}

impl Default for RunSection {
    fn default() -> RunSection {
        RunSection {
            core: None,
            yield_when_idle: false,
            heartbeat_ms: 10,
            digest_every: 64,
            state_dir: PathBuf::from("/var/tmp/bookcast"),
            lead_ms: 200,
            linger_ms: 1000,
        }
    }
}

/// `[books]`
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BooksSection {
    /// Books.
    pub instruments: usize,
    /// Orders resting at one time, in all books together.
    pub orders: usize,
    /// Price levels at one time, in all books together.
    pub levels: usize,
}

impl Default for BooksSection {
    fn default() -> BooksSection {
        let BooksConfig { instruments, orders, levels } = BooksConfig::default();
        BooksSection { instruments, orders, levels }
    }
}

impl From<BooksSection> for BooksConfig {
    fn from(section: BooksSection) -> BooksConfig {
        let BooksSection { instruments, orders, levels } = section;
        BooksConfig { instruments, orders, levels }
    }
}

/// The most lines of a recovery server's history: 16 GiB.
const MAX_HISTORY_LINES: usize = 1 << 28;
/// The least MTU that carries a packet of one line.
const LEAST_REPLY_MTU: u32 = 124;

/// The most orders, and the most levels, that books may be sized for: some gigabytes.
const MAX_BOOK_ENTRIES: usize = 1 << 26;

fn one() -> u16 {
    1
}

fn one_hop() -> u8 {
    1
}

fn ethernet() -> u32 {
    1500
}

fn default_qkey() -> u32 {
    0x0042_4B43
}

fn sixteen() -> usize {
    16
}

fn send_depth() -> usize {
    256
}

fn history_lines() -> usize {
    1 << 20
}

fn recovery_rate() -> u64 {
    1_000_000
}

fn recovery_subscribers() -> usize {
    256
}

fn hundred_ms() -> u64 {
    100
}

fn half_a_second() -> u64 {
    500
}

fn as_captured() -> Pace {
    Pace::Speed(1.0)
}

fn nasdaq() -> String {
    "XNAS".into()
}

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: cannot be read ({source}); give the path of a publisher's TOML file", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's cause.
        source: std::io::Error,
    },
    /// It is not TOML, or holds a key or value that does not belong there.
    #[error("{}: {message}{}", path.display(), suggestion.as_ref().map(|s| format!("\ndid you mean '{s}'?")).unwrap_or_default())]
    Parse {
        /// The file.
        path: PathBuf,
        /// What and where, by the parser.
        message: String,
        /// The nearest known key, when one is unknown.
        suggestion: Option<String>,
    },
    /// A value is out of range.
    #[error("{}: {key}: {problem}", path.display())]
    Value {
        /// The file.
        path: PathBuf,
        /// Which key.
        key: &'static str,
        /// What is wrong and what would be right.
        problem: String,
    },
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// [`ConfigError`]: what is wrong, where, and what would be right.
    pub fn load(path: &Path) -> Result<Config, ConfigError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
        Config::parse(&text, path)
    }

    /// Checks the text of a file; `path` names it in errors.
    ///
    /// # Errors
    /// [`ConfigError`], as [`Config::load`].
    pub fn parse(text: &str, path: &Path) -> Result<Config, ConfigError> {
        let config: Config = toml::from_str(text).map_err(|error| ConfigError::Parse {
            path: path.to_owned(),
            suggestion: nearest_key(error.message()),
            message: error.to_string().trim_end().to_string(),
        })?;
        config.check(path)?;
        Ok(config)
    }

    fn check(&self, path: &Path) -> Result<(), ConfigError> {
        let bad = |key, problem: String| Err(ConfigError::Value { path: path.to_owned(), key, problem });
        let name = &self.channel.name;
        let legal = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.len() > 64 || !name.chars().all(legal) || name.starts_with('.') {
            return bad(
                "channel.name",
                format!("{name:?} is no channel name; use 1 to 64 letters, digits, '-', '_', '.'"),
            );
        }
        if !self.ring.lines.is_power_of_two() || self.ring.lines < 2 {
            let next = self.ring.lines.max(2).next_power_of_two();
            return bad("ring.lines", format!("{} is not a power of two; the next one is {next}", self.ring.lines));
        }
        for (key, value, most) in [
            ("books.instruments", self.books.instruments, protocol::book::MAX_INSTRUMENTS as usize),
            ("books.orders", self.books.orders, MAX_BOOK_ENTRIES),
            ("books.levels", self.books.levels, MAX_BOOK_ENTRIES),
        ] {
            if value > most {
                return bad(
                    key,
                    format!("{value} is more than {most}; all of it is allocated and touched at the start"),
                );
            }
        }
        if let Err(error) = self.feed.pace.checked() {
            return bad("feed.pace", error.to_string());
        }
        if crate::itch::Market::from_venue(&self.feed.market).is_none() {
            return bad("feed.market", format!("{:?} is not one of XNAS, XBOS, XPSX", self.feed.market));
        }
        if self.run.heartbeat_ms == 0 || self.run.heartbeat_ms > 1000 {
            return bad("run.heartbeat_ms", format!("{} is not within 1 to 1000", self.run.heartbeat_ms));
        }
        if self.run.lead_ms > 600_000 {
            return bad("run.lead_ms", format!("{} is more than ten minutes", self.run.lead_ms));
        }
        if self.run.linger_ms > 600_000 {
            return bad("run.linger_ms", format!("{} is more than ten minutes", self.run.linger_ms));
        }
        if let Some(core) = self.run.core
            && let Err(error) = crate::pin::check(core)
        {
            return bad("run.core", error.to_string());
        }
        if let Some(control) = &self.control {
            if control.tokens.is_empty() {
                return bad(
                    "control.tokens",
                    "there are none, so nobody could ask; give one of at least 8 characters".into(),
                );
            }
            if let Some(short) = control.tokens.iter().find(|token| token.chars().count() < 8) {
                let count = short.chars().count();
                return bad("control.tokens", format!("one has {count} characters; give at least 8"));
            }
        }
        if let Some(recovery) = &self.recovery {
            let lines = recovery.history_lines;
            if !lines.is_power_of_two() || !(2..=MAX_HISTORY_LINES).contains(&lines) {
                let problem = format!("{lines} is not a power of two from 2 to {MAX_HISTORY_LINES}");
                return bad("recovery.history_lines", problem);
            }
            let rate = recovery.lines_per_second;
            if !(1_000..=1_000_000_000).contains(&rate) {
                return bad("recovery.lines_per_second", format!("{rate} is not within 1000 to 1000000000"));
            }
            if !(1..=4096).contains(&recovery.subscribers) {
                return bad("recovery.subscribers", format!("{} is not within 1 to 4096", recovery.subscribers));
            }
            if !(LEAST_REPLY_MTU..=65_535).contains(&recovery.mtu) {
                return bad("recovery.mtu", format!("{} is not within {LEAST_REPLY_MTU} to 65535", recovery.mtu));
            }
            if let Some(core) = recovery.core
                && let Err(error) = crate::pin::check(core)
            {
                return bad("recovery.core", error.to_string());
            }
            if recovery.core.is_some() && recovery.core == self.run.core {
                return bad(
                    "recovery.core",
                    "is the publishing loop's own (run.core): give it another, or none".into(),
                );
            }
            if self.control.is_none() {
                let problem = "subscribers are let in by the control channel, and there is no [control]: add it";
                return bad("recovery", problem.into());
            }
        }
        if let Some(rdma) = &self.rdma {
            if !cfg!(feature = "rdma") {
                return bad("rdma", transport::NO_RDMA.into());
            }
            match rdma.group {
                Some(group) if !group.is_multicast() => {
                    return bad(
                        "rdma.group",
                        format!("{group} is no multicast address (224.0.0.0 to 239.255.255.255)"),
                    );
                }
                None if rdma.subscribers == 0 => {
                    return bad("rdma", "neither a group nor subscribers: nobody would get anything".into());
                }
                _ => {}
            }
            if rdma.qkey >> 31 != 0 {
                return bad("rdma.qkey", format!("{:#x} is not below 2^31", rdma.qkey));
            }
            if rdma.deadline_ms == 0 || rdma.deadline_ms > 60_000 {
                return bad("rdma.deadline_ms", format!("{} is not within 1 to 60000", rdma.deadline_ms));
            }
            if rdma.subscribers > 0 && self.control.is_none() {
                let problem = "subscribers offer their rings by the control channel, and there is no [control]: add it, \
                               or set subscribers = 0";
                return bad("rdma.subscribers", problem.into());
            }
        }
        if let Some(partner) = &self.partner {
            if !partner.group.is_multicast() {
                let problem = format!("{} is no multicast address (224.0.0.0 to 239.255.255.255)", partner.group);
                return bad("partner.group", problem);
            }
            if !(1..=60_000).contains(&partner.wait_ms) {
                return bad("partner.wait_ms", format!("{} is not within 1 to 60000", partner.wait_ms));
            }
        }
        if let Some(udp) = &self.udp
            && !udp.group.is_multicast()
        {
            return bad("udp.group", format!("{} is no multicast address (224.0.0.0 to 239.255.255.255)", udp.group));
        }
        Ok(())
    }

    /// What defines the stream.
    pub fn channel_config(&self) -> ChannelConfig {
        ChannelConfig { books: self.books.into(), start: self.feed.start.into(), digest_every: self.run.digest_every }
    }
}

/// The known key nearest to an unknown one, out of the parser's message: "unknown field `x`, expected one of `a`, `b`".
fn nearest_key(message: &str) -> Option<String> {
    let mut quoted = message.split('`').skip(1).step_by(2);
    if !message.starts_with("unknown ") {
        return None;
    }
    let unknown = quoted.next()?;
    quoted
        .map(|known| (strsim::damerau_levenshtein(unknown, known), known))
        .min()
        .filter(|(distance, known)| *distance <= known.len().max(unknown.len()).div_ceil(2))
        .map(|(_, known)| known.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALLEST: &str = "[channel]\nname = 'x'\n[feed]\npath = 'y.itch'\n";

    fn parse(text: &str) -> Result<Config, String> {
        Config::parse(text, Path::new("p.toml")).map_err(|error| error.to_string())
    }

    #[test]
    fn the_smallest_file_gives_the_defaults() {
        let config = parse(SMALLEST).expect("legal");
        assert_eq!((config.channel.id, config.channel.lane, config.ring.lines), (1, 0, 65_536));
        assert_eq!(config.feed.pace, Pace::Speed(1.0));
        assert_eq!(config.run.digest_every, 64);
    }

    #[test]
    fn unknown_keys_are_refused_with_the_nearest_known_one() {
        for (extra, nearest) in [
            ("[run]\nheartbeat = 10\n", "heartbeat_ms"),
            ("[rnig]\nlines = 4\n", "ring"),
            ("[ring]\nline = 4\n", "lines"),
            ("[udp]\ngrup = '239.1.1.1'\n", "group"),
        ] {
            let error = parse(&format!("{SMALLEST}{extra}")).expect_err("refused");
            assert!(error.contains(&format!("did you mean '{nearest}'?")), "{error}");
            assert!(error.contains("p.toml") && error.contains("line 5") || error.contains("line 6"), "{error}");
        }
    }

    #[test]
    fn values_out_of_range_are_named_with_what_would_be_right() {
        for (extra, expect) in [
            ("[ring]\nlines = 1000\n", "the next one is 1024"),
            ("[books]\norders = 1000000000000\n", "books.orders: 1000000000000 is more than"),
            ("[run]\ncore = 4000\n", "run.core"),
            ("[run]\nheartbeat_ms = 0\n", "1 to 1000"),
            ("[udp]\ngroup = '10.0.0.1'\nport = 1\ninterface = 'lo'\n", "no multicast address"),
            ("[partner]\ngroup = '10.0.0.1'\nport = 1\ninterface = 'lo'\n", "partner.group: 10.0.0.1 is no"),
            ("[partner]\ngroup = '239.0.0.1'\nport = 1\ninterface = 'lo'\nwait_ms = 0\n", "partner.wait_ms: 0 is not"),
            ("[control]\nlisten = '127.0.0.1:0'\ntokens = []\n", "control.tokens"),
            ("[recovery]\nlisten = '127.0.0.1:0'\n", "there is no [control]"),
            ("[recovery]\nlisten = '127.0.0.1:0'\ncore = 0\n[run]\ncore = 0\n", "recovery.core: is the publishing"),
            ("[recovery]\nlisten = '127.0.0.1:0'\nhistory_lines = 1000\n", "recovery.history_lines: 1000 is not"),
            ("[recovery]\nlisten = '127.0.0.1:0'\nlines_per_second = 1\n", "recovery.lines_per_second: 1 is not"),
            ("[recovery]\nlisten = '127.0.0.1:0'\nmtu = 100\n", "recovery.mtu: 100 is not"),
            ("[control]\nlisten = '127.0.0.1:0'\ntokens = ['long enough', 'short']\n", "one has 5 characters"),
        ] {
            let error = parse(&format!("{SMALLEST}{extra}")).expect_err("refused");
            assert!(error.contains(expect), "{error}");
        }
        let error = parse("[channel]\nname = '../x'\n[feed]\npath = 'y'\n").expect_err("refused");
        assert!(error.contains("channel.name"), "{error}");
        let error = parse("[channel]\nname = 'x'\n[feed]\npath = 'y'\npace = { rate = 0.0 }\n").expect_err("refused");
        assert!(error.contains("feed.pace"), "{error}");
    }
}
