//! Printing that survives its reader.
//!
//! The standard library's `println!` and `eprintln!` panic when the other end of a pipe is gone: `publisher run … | head`
//! would end in a panic, and a publisher whose log collector died would die with it. A program that writes
//! `use cli::{eprintln, println};` has these instead.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};

/// The status of a program that ends because nobody reads its output: what a shell shows for SIGPIPE (128 + 13), of which
/// the system's own commands die.
const CLOSED_PIPE: i32 = 141;

/// Prints a line to standard output. If nobody reads it any more, the program ends quietly, with status 141; if it cannot be
/// written for another reason (a full disk), that is said on standard error, and the status is 1.
#[macro_export]
macro_rules! println {
    () => { $crate::say_line(format_args!("")) };
    ($($argument:tt)*) => { $crate::say_line(format_args!($($argument)*)) };
}

/// [`println!`](macro@crate::println) without the end of the line.
#[macro_export]
macro_rules! print {
    ($($argument:tt)*) => { $crate::say_text(format_args!($($argument)*)) };
}

/// Prints a line to standard error, as far as that takes it: whatever becomes of it, the program goes on.
#[macro_export]
macro_rules! eprintln {
    () => { $crate::say_error(format_args!("")) };
    ($($argument:tt)*) => { $crate::say_error(format_args!($($argument)*)) };
}

/// What [`println!`](macro@crate::println) does.
pub fn say_line(text: Arguments<'_>) {
    say_text(format_args!("{text}\n"));
}

/// What [`print!`](macro@crate::print) does.
pub fn say_text(text: Arguments<'_>) {
    let mut out = io::stdout().lock();
    match write!(out, "{text}").and_then(|()| out.flush()) {
        Ok(()) => {}
        Err(cause) if cause.kind() == ErrorKind::BrokenPipe => std::process::exit(CLOSED_PIPE),
        Err(cause) => {
            say_error(format_args!("standard output cannot be written: {cause}"));
            std::process::exit(1);
        }
    }
}

/// What [`eprintln!`](macro@crate::eprintln) does: one write where the system takes it in one, so that lines of several threads do
/// not mix.
pub fn say_error(text: Arguments<'_>) {
    let _ = io::stderr().lock().write_all(format!("{text}\n").as_bytes());
}
