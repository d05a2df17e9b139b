//! What a file holds, by its content.
//!
//! Each kind of feed is tried on the beginning of the stream, record by record: it fits if every one of the first
//! [`TRIED`] records walks to its exact end and the table of types and lengths knows at least 99 of 100. One that fits is
//! the feed; none, or two, is an error that says where each first did not, and `--feed` settles it.
//!
//! In packet captures each flow is tried by itself, a flow being where its datagrams go. One that does not fit is left
//! aside, whatever sessions it seems to hold.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::capture::window::Window;
use crate::capture::{Container, Packets, datagram};
use crate::dbn;
use crate::input::Packing;
use crate::itch;
use crate::itch::mold::packet::{HEADER_LEN, MoldPacket, Purpose};

/// Records, or packets of a flow, that are tried.
pub const TRIED: u64 = 1_000;
/// Of a hundred records, so many have to be of a known type and length.
const FITTING_PERCENT: u64 = 99;
/// Bytes of the stream that are looked at: a thousand of the longest records there are.
pub const HEAD_LEN: usize = 1 << 20;
/// Flows that are told apart in a capture's beginning; of those beyond nothing is known.
const MAX_FLOWS: usize = 256;

/// A kind of feed that is read here.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FeedKind {
    /// ITCH 5.0 in Nasdaq's own files: BinaryFILE.
    Itch,
    /// ITCH 5.0 in MoldUDP64 datagrams: in a packet capture, or bare.
    Mold,
    /// DBN.
    Dbn,
}

impl FeedKind {
    /// All of them.
    pub const ALL: [FeedKind; 3] = [FeedKind::Itch, FeedKind::Mold, FeedKind::Dbn];

    /// As `--feed` takes it.
    pub const fn name(self) -> &'static str {
        match self {
            FeedKind::Itch => "itch",
            FeedKind::Mold => "mold",
            FeedKind::Dbn => "dbn",
        }
    }
}

impl fmt::Display for FeedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FeedKind::Itch => "ITCH 5.0 in BinaryFILE (itch)",
            FeedKind::Mold => "ITCH 5.0 in MoldUDP64 (mold)",
            FeedKind::Dbn => "DBN (dbn)",
        })
    }
}

impl FromStr for FeedKind {
    type Err = String;

    fn from_str(name: &str) -> Result<FeedKind, String> {
        let names: Vec<&str> = FeedKind::ALL.iter().map(|kind| kind.name()).collect();
        let found = FeedKind::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| format!("there is no feed '{name}'; there are {}", names.join(", ")))
    }
}

/// How a kind of feed fared on a stream, or on a flow.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trial {
    /// Records that walked to their exact end.
    pub records: u64,
    /// Of these, how many are of a known type and its length.
    pub fitting: u64,
    /// Where something first did not fit, in bytes from the start of the uncompressed stream, and what.
    pub misfit: Option<(u64, String)>,
    /// Something could not be walked: whatever follows is not known.
    pub broken: bool,
}

impl Trial {
    /// Whether it is this kind of feed.
    pub fn fits(&self) -> bool {
        !self.broken && self.records > 0 && self.fitting * 100 >= self.records * FITTING_PERCENT
    }

    fn walked(&mut self, offset: u64, known: Result<(), String>) {
        self.records += 1;
        match known {
            Ok(()) => self.fitting += 1,
            Err(what) => self.note(offset, what),
        }
    }

    fn stop(&mut self, offset: u64, what: String) {
        self.broken = true;
        self.note(offset, what);
    }

    fn note(&mut self, offset: u64, what: String) {
        self.misfit.get_or_insert((offset, what));
    }
}

/// Why it cannot be said what a file holds.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DetectError {
    /// It fits several kinds.
    #[error("{}: this can be read as {} and as {}; say which with --feed", path.display(), kinds[0], kinds[1])]
    Several {
        /// The file.
        path: PathBuf,
        /// The kinds.
        kinds: Vec<FeedKind>,
    },
    /// It fits none.
    #[error("{}: no feed that is read here: {}. If it is one all the same, say which with --feed", path.display(), misfits(tried))]
    None {
        /// The file.
        path: PathBuf,
        /// How each kind fared.
        tried: Vec<(FeedKind, Trial)>,
    },
}

impl DetectError {
    /// Where the kind that came furthest first did not fit, in bytes of the uncompressed stream.
    pub fn offset(&self) -> u64 {
        match self {
            DetectError::Several { .. } => 0,
            DetectError::None { tried, .. } => tried
                .iter()
                .filter_map(|(_, trial)| trial.misfit.as_ref())
                .map(|(offset, _)| *offset)
                .max()
                .unwrap_or(0),
        }
    }
}

fn misfits(tried: &[(FeedKind, Trial)]) -> String {
    let one = |(kind, trial): &(FeedKind, Trial)| match &trial.misfit {
        Some((offset, what)) => {
            let share = if trial.broken {
                format!("after {} records", trial.records)
            } else {
                format!("{} of {} records fit", trial.fitting, trial.records)
            };
            format!("as {kind} it first does not fit at offset {offset} ({share}): {what}")
        }
        None => format!("as {kind} it holds no record"),
    };
    tried.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// What the stream that begins with `head` holds; `whole` says that there is no more of it. For streams that are no packet
/// capture.
///
/// # Errors
/// [`DetectError`].
pub fn stream_kind(path: &Path, head: &[u8], whole: bool) -> Result<FeedKind, DetectError> {
    let tried = [
        (FeedKind::Itch, binary_file(head, whole)),
        (FeedKind::Mold, bare_datagrams(head, whole)),
        (FeedKind::Dbn, dbn_records(head, whole)),
    ];
    let kinds: Vec<FeedKind> = tried.iter().filter(|(_, trial)| trial.fits()).map(|(kind, _)| *kind).collect();
    match kinds[..] {
        [kind] => Ok(kind),
        [] => Err(DetectError::None { path: path.to_owned(), tried: tried.to_vec() }),
        _ => Err(DetectError::Several { path: path.to_owned(), kinds }),
    }
}

fn itch_message(message: &[u8]) -> Result<(), String> {
    itch::decode(message).map(|_| ()).map_err(|rejected| rejected.to_string())
}

fn binary_file(head: &[u8], whole: bool) -> Trial {
    let mut trial = Trial::default();
    let mut at = 0;
    while trial.records < TRIED && at < head.len() {
        let len = head.get(at..at + 2).map(|prefix| usize::from(u16::from_be_bytes([prefix[0], prefix[1]])));
        let message = len.and_then(|len| head.get(at + 2..at + 2 + len));
        match (len, message) {
            // The end of a session, as the very last thing.
            (Some(0), _) if whole && at + 2 == head.len() && trial.records > 0 => break,
            (Some(0), _) => {
                trial.stop(at as u64, "the length prefix is zero, and data follows".into());
                break;
            }
            (_, Some(message)) => {
                trial.walked(at as u64, itch_message(message));
                at += 2 + message.len();
            }
            // The look ends here, or the file is cut off: its reader will say so.
            (..) => {
                if trial.records == 0 {
                    trial.stop(at as u64, "the file ends inside its first message".into());
                }
                break;
            }
        }
    }
    trial
}

fn bare_datagrams(head: &[u8], whole: bool) -> Trial {
    let mut trial = Trial::default();
    let mut at = 0;
    while trial.records < TRIED && at < head.len() {
        let packet = MoldPacket::parse(&head[at..]).filter(|_| itch::mold::is_bare(&head[at..]));
        let Some(packet) = packet else {
            // A header that is cut off is no misfit where something came before it.
            if head.len() - at > HEADER_LEN + 1 || trial.records == 0 {
                trial.stop(at as u64, "there is no MoldUDP64 header".into());
            }
            break;
        };
        // One behind the other, a datagram ends where its last message does.
        let len = HEADER_LEN + packet.blocks.len();
        if packet.present < packet.announced {
            if trial.records == 0 || packet.present == 0 && !whole {
                trial.stop(at as u64, "the first datagram is not whole".into());
            }
            break;
        }
        let first = packet.messages().map(itch_message).find(Result::is_err).unwrap_or(Ok(()));
        trial.walked(at as u64, first);
        at += len;
    }
    trial
}

fn dbn_records(head: &[u8], whole: bool) -> Trial {
    let mut trial = Trial::default();
    let prelude = head.get(..dbn::file::PRELUDE_LEN);
    let Some([b'D', b'B', b'N', version, length @ ..]) = prelude else {
        trial.stop(0, "it does not begin with the letters DBN".into());
        return trial;
    };
    if !dbn::file::VERSIONS.contains(version) {
        trial.stop(3, format!("it is of DBN version {version}; versions 1 to 3 are read here"));
        return trial;
    }
    let length = length.try_into().map_or(0, u32::from_le_bytes) as usize;
    let mut at = dbn::file::PRELUDE_LEN + length;
    if at >= head.len() {
        // Metadata alone, or metadata that is longer than the look: the letters, version and length are what there is.
        (trial.records, trial.fitting) = (1, 1);
        return trial;
    }
    while trial.records < TRIED && at < head.len() {
        let len = usize::from(head[at]) * dbn::types::UNIT_LEN;
        if len < dbn::types::HEADER_LEN {
            trial.stop(at as u64, format!("a record claims {len} bytes, and its header alone has 16"));
            break;
        }
        let Some(record) = head.get(at..at + len) else {
            if trial.records == 0 && whole {
                (trial.records, trial.fitting) = (1, 1);
            }
            break;
        };
        let known = dbn::types::of(record[1]).map(|known| known.length_of(len));
        trial.walked(
            at as u64,
            match known {
                None => Err(format!("unknown record type 0x{:02X}", record[1])),
                Some(None) => Err(format!("record type 0x{:02X} has {len} bytes", record[1])),
                Some(Some(_)) => Ok(()),
            },
        );
        at += len;
    }
    trial
}

/// How MoldUDP64 fared on each flow in the beginning of a packet capture, by where the datagrams go.
pub fn flows(path: &Path, head: &[u8], container: Container) -> BTreeMap<SocketAddr, Trial> {
    let mut flows: BTreeMap<SocketAddr, Trial> = BTreeMap::new();
    let window = Window::new(head, path, Packing::Plain);
    let Ok(mut packets) = Packets::new(window, container) else { return flows };
    // What ends the look, the end of it among others, is for the feed's own reader to say.
    while let Ok(Some(packet)) = packets.next_packet() {
        let Ok(found) = datagram(packet.link, packet.bytes) else { continue };
        if flows.len() == MAX_FLOWS && !flows.contains_key(&found.destination) {
            continue;
        }
        let trial = flows.entry(found.destination).or_default();
        // What the capture kept a part of only says nothing of the whole.
        if trial.records < TRIED && !found.is_cut {
            mold_datagram(trial, packet.offset, found.payload);
        }
    }
    flows
}

fn mold_datagram(trial: &mut Trial, offset: u64, payload: &[u8]) {
    let Some(packet) = MoldPacket::parse(payload) else {
        return trial.stop(offset, "a datagram has no MoldUDP64 header".into());
    };
    let walks = packet.present == packet.announced && packet.left_over == 0;
    if packet.purpose == Purpose::Messages && !walks {
        return trial.stop(offset, "a datagram's messages do not end where it does".into());
    }
    trial.walked(offset, packet.messages().map(itch_message).find(Result::is_err).unwrap_or(Ok(())));
}

#[cfg(test)]
mod tests;
