#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bookcast_fuzz::fuzz::feeds::itch_message(bytes));
