//! What a user reads: help with examples, man pages, shell completions.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use bookcast_tests::programs::{output, printed};

const PROGRAMS: [&str; 3] = ["feeds-replay", "publisher", "subscriber"];

fn said(program: &str, arguments: &[&str]) -> String {
    let output = output(program, arguments);
    assert!(output.status.success(), "{program} {arguments:?}: {}", printed(&output));
    String::from_utf8(output.stdout).expect("text")
}

/// The man pages of a program, by the words that start what they are of: `["publisher", "run"]`.
fn pages(program: &str, folder: &Path) -> BTreeMap<Vec<String>, String> {
    let directory = folder.join(program);
    said(program, &["man", directory.to_str().expect("text")]);
    let mut pages = BTreeMap::new();
    for entry in std::fs::read_dir(&directory).expect("a folder") {
        let path = entry.expect("an entry").path();
        let stem = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".1"));
        let stem = stem.expect("a page of section 1");
        let rest = stem.strip_prefix(program).expect("the program's name comes first");
        let mut words = vec![program.to_owned()];
        words.extend(rest.strip_prefix('-').map(str::to_owned));
        pages.insert(words, std::fs::read_to_string(&path).expect("a page"));
    }
    pages
}

#[test]
fn every_command_has_a_man_page_and_help_that_teaches_by_examples() {
    let folder = tempfile::tempdir().expect("a folder");
    for (program, least) in PROGRAMS.into_iter().zip([6, 6, 4]) {
        let pages = pages(program, folder.path());
        assert!(pages.len() >= least, "{program}: {:?}", pages.keys());
        for (words, page) in pages {
            assert!(page.contains("Examples"), "the page of {words:?} has no example");
            let mut arguments: Vec<&str> = words[1..].iter().map(String::as_str).collect();
            arguments.push("--help");
            let help = said(program, &arguments);
            assert!(help.contains("Examples") && help.contains("Usage: "), "{words:?}: {help}");
        }
    }
}

#[test]
fn completions_are_scripts_that_their_shell_reads() {
    for program in PROGRAMS {
        let script = said(program, &["completions", "bash"]);
        assert!(script.contains(program) && script.contains("completions"), "{program}: {script}");
        let mut bash =
            Command::new("bash").arg("-n").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("bash");
        std::io::Write::write_all(&mut bash.stdin.take().expect("a pipe"), script.as_bytes()).expect("reads");
        let outcome = bash.wait_with_output().expect("ends");
        assert!(outcome.status.success(), "{program}: {}", printed(&outcome));
        for shell in ["zsh", "fish"] {
            assert!(said(program, &["completions", shell]).contains(program), "{program}, {shell}");
        }
    }
}
