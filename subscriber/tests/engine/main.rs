//! The subscriber as a strategy meets it: real lines over an in-process link, in virtual time, one test a promise.

#![forbid(unsafe_code)]

mod callbacks;
mod selection;
mod states;
mod stream;
mod support;
