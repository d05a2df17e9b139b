//! `decode`: how fast feeds are taken apart, beside the crates that a user would take instead. One core, everything in
//! memory; each contender goes through the same bytes in turn, and adds up the same numbers, so that each has to read them.

#![forbid(unsafe_code)]

use std::io::Cursor;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

use benches::day::{Day, DayOptions};
use benches::machine::{Machine, load, pin_anew, waited_ns};
use benches::ratio::{of_slices, spread};
use clap::Parser;
use cli::{eprintln, println};
use dbn::MboMsg;
use feeds_replay::record::{Output, record_capture};
use itch5::messages as peer;
use publisher::capture::window::Window;
use publisher::dbn::DbnFile;
use publisher::feed::FeedSource;
use publisher::input::Packing;
use publisher::itch::{BinaryFile, FramingOptions, Message, Normaliser, NormaliserOptions, decode};
use transport::clock::Clock;

type Failure = Box<dyn std::error::Error>;

/// Measures how fast ITCH and DBN are framed and decoded, beside the crates itchy, itch5 and dbn.
#[derive(Parser)]
#[command(version)]
struct Options {
    /// Rounds; in each, every contender has a slice.
    #[arg(long, default_value_t = 60, value_name = "N")]
    rounds: usize,
    /// Messages of the generated day: a slice takes all of them.
    #[arg(long, default_value_t = 300_000, value_name = "N")]
    messages: u64,
    /// Seed of the generated day.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// What a contender has seen: how many messages or records, and the sum of the orders that they name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Seen {
    messages: u64,
    orders: u64,
}

impl Seen {
    fn note(&mut self, order: u64) {
        self.messages += 1;
        self.orders = self.orders.wrapping_add(order);
    }
}

struct Contender<'a> {
    name: &'static str,
    run: Box<dyn Fn() -> Result<Seen, Failure> + 'a>,
    /// ns a message, by round.
    slices: Vec<f64>,
    disturbed: usize,
}

fn contender<'a>(name: &'static str, run: impl Fn() -> Result<Seen, Failure> + 'a) -> Contender<'a> {
    Contender { name, run: Box::new(run), slices: Vec::new(), disturbed: 0 }
}

fn ours(bytes: &[u8]) -> Result<Seen, Failure> {
    let mut source = BinaryFile::from_reader(Cursor::new(bytes), Path::new("generated"), FramingOptions::default());
    let mut seen = Seen::default();
    while let Some(message) = source.next()? {
        seen.note(match decode(message.bytes)? {
            Message::AddOrder(m) => m.order_reference.get(),
            Message::AddOrderAttributed(m) => m.order_reference.get(),
            Message::OrderExecuted(m) => m.order_reference.get(),
            Message::OrderExecutedWithPrice(m) => m.order_reference.get(),
            Message::OrderCancel(m) => m.order_reference.get(),
            Message::OrderDelete(m) => m.order_reference.get(),
            Message::OrderReplace(m) => m.original_reference.get(),
            _ => 0,
        });
    }
    Ok(seen)
}

fn itchy(bytes: &[u8]) -> Result<Seen, Failure> {
    let mut seen = Seen::default();
    for message in itchy::MessageStream::from_reader(Cursor::new(bytes)) {
        seen.note(match message?.body {
            itchy::Body::AddOrder(order) => order.reference,
            itchy::Body::OrderExecuted { reference, .. }
            | itchy::Body::OrderExecutedWithPrice { reference, .. }
            | itchy::Body::OrderCancelled { reference, .. }
            | itchy::Body::DeleteOrder { reference } => reference,
            itchy::Body::ReplaceOrder(order) => order.old_reference,
            _ => 0,
        });
    }
    Ok(seen)
}

/// It calls a method for each type of message; those that name no order are not counted.
impl itch5::MessageHandler for Seen {
    fn on_add_order_no_mpid_attribution(&mut self, m: &peer::AddOrderNoMPIDAttribution) -> ControlFlow<()> {
        self.note(m.order_reference_number());
        ControlFlow::Continue(())
    }
    fn on_add_order_with_mpid_attribution(&mut self, m: &peer::AddOrderWithMPIDAttribution) -> ControlFlow<()> {
        self.note(m.order_reference_number());
        ControlFlow::Continue(())
    }
    fn on_order_executed(&mut self, m: &peer::OrderExecuted) -> ControlFlow<()> {
        self.note(m.order_reference_number());
        ControlFlow::Continue(())
    }
    fn on_order_executed_with_price(&mut self, m: &peer::OrderExecutedWithPrice) -> ControlFlow<()> {
        self.note(m.order_reference_number());
        ControlFlow::Continue(())
    }
    fn on_order_cancel(&mut self, m: &peer::OrderCancel) -> ControlFlow<()> {
        self.note(m.order_reference_number());
        ControlFlow::Continue(())
    }
    fn on_order_delete(&mut self, m: &peer::OrderDelete) -> ControlFlow<()> {
        self.note(m.order_reference_number());
        ControlFlow::Continue(())
    }
    fn on_order_replace(&mut self, m: &peer::OrderReplace) -> ControlFlow<()> {
        self.note(m.original_order_reference_number());
        ControlFlow::Continue(())
    }
}

fn itch5(bytes: &[u8]) -> Result<Seen, Failure> {
    let mut seen = Seen::default();
    itch5::Parser::new(bytes).parse_stream(&mut seen).map_err(|error| format!("itch5: {error:?}"))?;
    Ok(seen)
}

fn our_dbn(bytes: &[u8]) -> Result<Seen, Failure> {
    let window = Window::new(Cursor::new(bytes), Path::new("generated"), Packing::Plain);
    let mut source = DbnFile::from_window(window, false)?;
    let mut seen = Seen::default();
    while let Some(record) = source.next()? {
        seen.note(match record.bytes {
            [_, dbn::rtype::MBO, ..] => record.bytes[16..].first_chunk().map_or(0, |id| u64::from_le_bytes(*id)),
            _ => 0,
        });
    }
    Ok(seen)
}

fn their_dbn(bytes: &[u8]) -> Result<Seen, Failure> {
    let mut source = dbn::decode::dbn::Decoder::new(Cursor::new(bytes))?;
    let mut seen = Seen::default();
    while let Some(record) = source.decode_ref()? {
        seen.note(record.get::<MboMsg>().map_or(0, |record| record.order_id));
    }
    Ok(seen)
}

/// The day without the types that itchy does not know (`h` and `O`), so that all go through the same bytes.
fn day_for_all(day: &Day) -> Vec<u8> {
    let known = |message: &&[u8]| ![b'h', b'O'].contains(&message[0]);
    let messages: Vec<&[u8]> = day.messages().map(|message| message.bytes).collect();
    messages
        .iter()
        .filter(|message| known(message))
        .flat_map(|message| [&(message.len() as u16).to_be_bytes()[..], message].concat())
        .collect()
}

/// The day's orders as a DBN file, as `feeds-replay record` writes it.
fn day_as_dbn(day: &Day) -> Result<Vec<u8>, Failure> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("day.dbn");
    let source = BinaryFile::from_reader(Cursor::new(day.bytes()), Path::new("generated"), FramingOptions::default());
    let mut out = Output::create(&path, false)?;
    let date = publisher::date::session_date(Some("2024-01-02"), None, Path::new("generated"))?;
    let venue = Normaliser::new(NormaliserOptions::default(), date);
    record_capture(source, venue, &mut out, &AtomicBool::new(false))?;
    out.finish()?;
    Ok(std::fs::read(path)?)
}

/// Lets all of them have a slice in each round, and each go first in turn.
fn run(contenders: &mut [Contender<'_>], rounds: usize, clock: Clock) -> Result<Seen, Failure> {
    let most = (contenders[0].run)()?;
    for contender in contenders.iter() {
        let seen = (contender.run)()?;
        if seen.orders != most.orders || contender.name != "itch5" && seen != most {
            return Err(format!("{} has seen {seen:?}, {} {most:?}", contender.name, contenders[0].name).into());
        }
    }
    let count = contenders.len();
    for round in 0..rounds {
        for place in 0..count {
            let contender = &mut contenders[(round + place) % count];
            let (waited, begun) = (waited_ns(), clock.now());
            std::hint::black_box((contender.run)()?);
            let took = clock.now().since(begun).max(1) as u64;
            contender.slices.push(took as f64 / most.messages as f64);
            contender.disturbed += usize::from((waited_ns() - waited) * 100 > took);
        }
    }
    Ok(most)
}

fn print(what: &str, seen: Seen, bytes: &[u8], contenders: &[Contender<'_>]) {
    println!();
    println!("{what}: {} messages, {} bytes", seen.messages, bytes.len());
    for contender in contenders {
        let (Some(took), Some(ratio)) =
            (spread(contender.slices.clone()), of_slices(&contender.slices, &contenders[0].slices))
        else {
            continue;
        };
        println!(
            "{:<10} {:>6.2} ns a message (quartiles {:.2}-{:.2}); {:.2} times ours in the same round (quartiles \
             {:.2}-{:.2}); {} of {} slices disturbed",
            contender.name,
            took.median,
            took.lower_quartile,
            took.upper_quartile,
            ratio.median,
            ratio.lower_quartile,
            ratio.upper_quartile,
            contender.disturbed,
            ratio.rounds
        );
    }
}

fn measure(options: &Options) -> Result<(), Failure> {
    let machine = Machine::here();
    let clock = Clock::calibrate();
    if let Some(core) = machine.cores.first() {
        pin_anew(*core)?;
    }
    let day = Day::generate(DayOptions { seed: options.seed, symbols: 200, messages: options.messages })?;
    let (itch, orders) = (day_for_all(&day), day_as_dbn(&day)?);
    let mut of_itch =
        [contender("ours", || ours(&itch)), contender("itchy", || itchy(&itch)), contender("itch5", || itch5(&itch))];
    let mut of_dbn = [contender("ours", || our_dbn(&orders)), contender("dbn", || their_dbn(&orders))];
    let seen_itch = run(&mut of_itch, options.rounds, clock)?;
    let seen_dbn = run(&mut of_dbn, options.rounds, clock)?;
    let disturbed: usize = of_itch.iter().chain(&of_dbn).map(|contender| contender.disturbed).sum();
    let slices = (of_itch.len() + of_dbn.len()) * options.rounds;
    match 2 * disturbed > slices {
        true => println!("INVALID: others had over 1 % of {disturbed} of {slices} slices; repeat it when nothing runs"),
        false => println!("VALID"),
    }
    println!("machine: {machine}");
    println!("load average after: {}", load().map_or("unknown".into(), |load| format!("{load:.2}")));
    println!("one core, in memory; each goes through all of it in turn and adds up the orders that it names;");
    println!("medians over {} rounds, ratios of slices of one round", options.rounds);
    print(
        "ITCH 5.0 in BinaryFILE, framed and decoded (itch5 wants all of it in one slice)",
        seen_itch,
        &itch,
        &of_itch,
    );
    print("DBN, framed, the order's number read", seen_dbn, &orders, &of_dbn);
    Ok(())
}

fn main() -> ExitCode {
    match measure(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("decode: {error}");
            ExitCode::FAILURE
        }
    }
}
