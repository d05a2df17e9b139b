//! The fuzz targets on all that is known: the seeds, and what fuzzing found beyond them (`fuzz/corpus/`).
//!
//! With `BOOKCAST_FUZZ_SEEDS` the seeds are written into the folder that it names, one folder for each target, for
//! `tests/fuzz.sh`.

#![forbid(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::{env, fs};

use bookcast_tests::fuzz::TARGETS;

/// All files of the corpus together take less.
const MOST_BYTES: usize = 300_000;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz")
}

/// The files in a folder, by name; none where there is no folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|file| file.path()).collect();
    files.sort();
    files
}

#[test]
fn every_seed_and_every_file_of_the_corpus_is_as_it_must_be() {
    let (mut failed, mut bytes) = (Vec::new(), 0);
    for target in &TARGETS {
        let found = files(&folder().join("corpus").join(target.name)).into_iter().map(|path| {
            let input = fs::read(&path).unwrap_or_else(|cause| panic!("{}: {cause}", path.display()));
            bytes += input.len();
            (path.display().to_string(), input)
        });
        let (seeds, found) = ((target.seeds)(), found.collect::<Vec<_>>());
        println!("{}: {} seeds, {} files", target.name, seeds.len(), found.len());
        assert!(seeds.len() >= 5, "{} seeds of {}", seeds.len(), target.name);
        for (name, input) in seeds.into_iter().chain(found) {
            if catch_unwind(AssertUnwindSafe(|| (target.run)(&input))).is_err() {
                failed.push(format!("{}: {name}", target.name));
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(bytes < MOST_BYTES, "the corpus has {bytes} bytes, {MOST_BYTES} is the bound");
}

#[test]
fn every_target_has_its_program_and_every_folder_its_target() {
    let stems = |files: Vec<PathBuf>| -> Vec<String> {
        files.iter().map(|file| file.file_stem().expect("a name").to_string_lossy().into_owned()).collect()
    };
    let mut names: Vec<String> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    names.sort();
    assert_eq!(stems(files(&folder().join("fuzz_targets"))), names);
    for name in stems(files(&folder().join("corpus"))) {
        assert!(names.contains(&name), "there is no target '{name}'");
    }
    let manifest = fs::read_to_string(folder().join("Cargo.toml")).expect("it is there");
    for name in &names {
        assert!(manifest.contains(&format!("name = \"{name}\"\n")), "fuzz/Cargo.toml has no program '{name}'");
        let program = fs::read_to_string(folder().join("fuzz_targets").join(format!("{name}.rs"))).expect("is read");
        assert!(program.contains(&format!("::{name}(bytes)")), "{name}.rs runs another target: {program}");
    }
}

#[test]
fn the_seeds_are_written_where_they_are_asked_for() {
    let (folder, kept);
    match env::var_os("BOOKCAST_FUZZ_SEEDS") {
        Some(asked) => folder = PathBuf::from(asked),
        None => {
            kept = tempfile::tempdir().expect("a folder");
            folder = kept.path().to_owned();
        }
    }
    for target in &TARGETS {
        let folder = folder.join(target.name);
        fs::create_dir_all(&folder).unwrap_or_else(|cause| panic!("{}: {cause}", folder.display()));
        let seeds = (target.seeds)();
        for (name, bytes) in &seeds {
            fs::write(folder.join(name.replace(' ', "-")), bytes).expect("is written");
        }
        assert!(files(&folder).len() >= seeds.len(), "two seeds of {} have one name", target.name);
    }
}
