//! The project's own programs, started as a user would start them.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use feeds_replay::generate::{GenerateOptions, generate};

/// The path of a binary of this workspace: it stands beside the folder of the test executable.
///
/// # Panics
/// If it has not been built: `cargo build --workspace --bins` comes before the tests.
pub fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    let folder = test.parent().and_then(Path::parent).expect("target/<profile>/deps");
    let path = folder.join(name);
    assert!(path.exists(), "{} is not there: run cargo build --workspace --bins first", path.display());
    path
}

/// Runs a program to its end.
///
/// # Panics
/// If it cannot be started.
pub fn output(name: &str, arguments: &[&str]) -> Output {
    Command::new(program(name)).args(arguments).stdin(Stdio::null()).output().expect("starts")
}

/// What a program printed, both streams, for messages of failing tests.
pub fn printed(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// A name that no other test and no other run uses.
pub fn unique(what: &str) -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNT: AtomicU32 = AtomicU32::new(0);
    // Relaxed: only uniqueness matters.
    format!("test-{}-{}-{what}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Writes a generated ITCH day and returns its path.
///
/// # Panics
/// If it cannot be written.
pub fn generated_day(folder: &Path, messages: u64, span_ns: u64) -> PathBuf {
    let path = folder.join("generated.itch");
    let mut file = std::io::BufWriter::new(std::fs::File::create(&path).expect("creates"));
    let options =
        GenerateOptions { seed: 7, symbols: 20, messages, span_ns: Some(span_ns), ..GenerateOptions::default() };
    generate(&options, &mut file).expect("generates");
    file.flush().expect("writes");
    path
}

/// A child process that is ended when this is dropped.
pub struct Running {
    /// The process.
    pub child: Child,
}

impl Running {
    /// Starts a program, its output where `stdout` and `stderr` say.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(name: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Running {
        let child = Command::new(program(name))
            .args(arguments)
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        Running { child }
    }

    /// Waits until a publisher has said where its control channel listens. What it says on standard error, up to then and
    /// from then on, goes to `heard`, line by line.
    ///
    /// # Panics
    /// If it ends without saying so, or this was asked before.
    pub fn control_channel(&mut self, mut heard: impl FnMut(String) + Send + 'static) -> SocketAddr {
        let mut said = BufReader::new(self.child.stderr.take().expect("piped, and not taken yet")).lines();
        let address = loop {
            let line = said.next().and_then(Result::ok).expect("it says where it listens");
            if let Some(address) = line.trim().strip_prefix("control channel: subscribers ask at ") {
                break address.parse().expect("an address");
            }
            heard(line);
        };
        // Read on, so that it never waits for a full pipe.
        std::thread::spawn(move || said.map_while(Result::ok).for_each(heard));
        address
    }

    /// Sends a signal by name, such as `TERM`.
    ///
    /// # Panics
    /// If `kill` cannot be run.
    pub fn signal(&self, signal: &str) {
        let status =
            Command::new("kill").args(["-s", signal, &self.child.id().to_string()]).status().expect("kill runs");
        assert!(status.success(), "kill -s {signal} {}", self.child.id());
    }

    /// Waits for its end and returns what it printed.
    ///
    /// # Panics
    /// If it does not end within `patience`.
    pub fn finish(mut self, patience: Duration) -> Output {
        let until = Instant::now() + patience;
        while self.child.try_wait().expect("can be waited for").is_none() {
            assert!(Instant::now() < until, "process {} did not end within {patience:?}", self.child.id());
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut output = Output { status: self.child.wait().expect("waits"), stdout: Vec::new(), stderr: Vec::new() };
        let streams = (self.child.stdout.take(), self.child.stderr.take());
        if let Some(mut stream) = streams.0 {
            std::io::Read::read_to_end(&mut stream, &mut output.stdout).expect("reads");
        }
        if let Some(mut stream) = streams.1 {
            std::io::Read::read_to_end(&mut stream, &mut output.stderr).expect("reads");
        }
        output
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        // In good order first: a publisher that is killed leaves its ring in shared memory.
        let _ = Command::new("kill").args(["-s", "TERM", &self.child.id().to_string()]).status();
        let until = Instant::now() + Duration::from_secs(3);
        while Instant::now() < until {
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
