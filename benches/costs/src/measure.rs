//! Runs the bench `counts` and reads what it counted; of this tree, and of a commit.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::limits::Counts;

/// Why nothing was counted.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// A program could not be started.
    #[error("{program} cannot be started: {source}")]
    Start {
        /// Which.
        program: String,
        /// The system's cause.
        source: io::Error,
    },
    /// A program failed.
    #[error("{program} failed ({status}); the end of what it said:\n{said}")]
    Failed {
        /// Which.
        program: String,
        /// How.
        status: String,
        /// The end of its output.
        said: String,
    },
    /// There is no runner.
    #[error(
        "{} is not there; build it with: cargo install --locked --root target/tools gungraun-runner --version ={version}",
        path.display()
    )]
    NoRunner {
        /// Where it was looked for.
        path: PathBuf,
        /// Which version it has to have.
        version: &'static str,
    },
    /// What was counted cannot be read.
    #[error("{}: {what}", path.display())]
    Summary {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
}

/// The version that the runner must have: that of the library.
pub const RUNNER_VERSION: &str = "0.20.0";

/// Where things are.
#[derive(Clone, Debug)]
pub struct Places {
    /// The workspace.
    pub workspace: PathBuf,
    /// The folder of cargo's output.
    pub target: PathBuf,
    /// The program gungraun-runner.
    pub runner: PathBuf,
}

impl Places {
    /// Of the workspace that this was built from; a target folder that the environment names is taken.
    pub fn here() -> Places {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let workspace = workspace.canonicalize().unwrap_or(workspace);
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), PathBuf::from);
        let target = std::path::absolute(&target).unwrap_or(target);
        let runner = std::env::var_os("GUNGRAUN_RUNNER")
            .map_or_else(|| workspace.join("target/tools/bin/gungraun-runner"), PathBuf::from);
        Places { workspace, target, runner }
    }

    /// Counts the instructions of every piece, as the tree in `folder` has them.
    ///
    /// # Errors
    /// [`MeasureError`].
    pub fn count(&self, folder: &Path) -> Result<Counts, MeasureError> {
        if !self.runner.is_file() {
            return Err(MeasureError::NoRunner { path: self.runner.clone(), version: RUNNER_VERSION });
        }
        let home = self.target.join("costs").join("counted");
        // What an earlier run counted must not be taken for this one's; if there is none there is nothing to remove.
        let _ = std::fs::remove_dir_all(&home);
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command
            .args(["bench", "--locked", "-p", "costs", "--bench", "counts", "--", "--save-summary=json"])
            .current_dir(folder)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("GUNGRAUN_RUNNER", &self.runner)
            .env("GUNGRAUN_HOME", &home);
        run("cargo bench -p costs", &mut command)?;
        let mut counts = Counts::new();
        read(&home, &mut counts)?;
        if counts.is_empty() {
            return Err(MeasureError::Summary { path: home, what: "nothing was counted".to_owned() });
        }
        Ok(counts)
    }

    /// What a tree is compared with: `HEAD` if the work tree differs from it, else its first parent. `None` where there is
    /// no such commit, or it has nothing that counts.
    pub fn parent(&self) -> Option<String> {
        let changed = self.git(&["status", "--porcelain", "--untracked-files=no"]).ok()?;
        let name = if changed.trim().is_empty() { "HEAD^" } else { "HEAD" };
        let commit = self.git(&["rev-parse", "--verify", "--quiet", &format!("{name}^{{commit}}")]).ok()?;
        let commit = commit.trim().to_owned();
        self.git(&["cat-file", "-e", &format!("{commit}:benches/costs/counts/counts.rs")]).ok()?;
        Some(commit)
    }

    /// Counts the instructions of every piece as they were in a commit, in a work tree of its own that is removed again.
    ///
    /// # Errors
    /// [`MeasureError`].
    pub fn count_commit(&self, commit: &str) -> Result<Counts, MeasureError> {
        let folder = self.target.join("costs").join("parent");
        let path = folder.to_string_lossy().into_owned();
        // A run that was killed may have left one behind; if not there is nothing to remove.
        let _ = self.git(&["worktree", "remove", "--force", &path]);
        self.git(&["worktree", "add", "--force", "--detach", &path, commit])?;
        let counts = self.count(&folder);
        self.git(&["worktree", "remove", "--force", &path])?;
        counts
    }

    fn git(&self, arguments: &[&str]) -> Result<String, MeasureError> {
        run("git", Command::new("git").arg("-C").arg(&self.workspace).args(arguments))
    }
}

/// Runs a program to its end and returns its output; its errors are told when it fails.
fn run(program: &str, command: &mut Command) -> Result<String, MeasureError> {
    /// The last lines are where the reason stands.
    const LINES: usize = 40;
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|source| MeasureError::Start { program: program.to_owned(), source })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let lines: Vec<&str> = said.lines().collect();
    let said = lines[lines.len().saturating_sub(LINES)..].join("\n");
    Err(MeasureError::Failed { program: program.to_owned(), status: output.status.to_string(), said })
}

/// What this reads of a summary; the rest is the runner's own affair.
#[derive(Deserialize)]
struct Summary {
    function_name: String,
    profiles: Vec<Profile>,
}

#[derive(Deserialize)]
struct Profile {
    tool: String,
    data: serde_json::Value,
}

/// Every summary in a folder and those below.
fn read(folder: &Path, counts: &mut Counts) -> Result<(), MeasureError> {
    let wrong = |path: &Path, what: String| MeasureError::Summary { path: path.to_owned(), what };
    let entries = std::fs::read_dir(folder).map_err(|cause| wrong(folder, cause.to_string()))?;
    for entry in entries {
        let path = entry.map_err(|cause| wrong(folder, cause.to_string()))?.path();
        if path.is_dir() {
            read(&path, counts)?;
        } else if path.file_name().is_some_and(|name| name == "summary.json") {
            let text = std::fs::read_to_string(&path).map_err(|cause| wrong(&path, cause.to_string()))?;
            let (name, count) = parse(&text).map_err(|what| wrong(&path, what))?;
            counts.insert(name, count);
        }
    }
    Ok(())
}

/// The function's name and its instructions.
fn parse(text: &str) -> Result<(String, u64), String> {
    let summary: Summary = serde_json::from_str(text).map_err(|cause| cause.to_string())?;
    let callgrind = summary.profiles.iter().find(|profile| profile.tool == "Callgrind").ok_or("no callgrind in it")?;
    let count = callgrind.data.pointer("/total/summary/Ir").or_else(|| callgrind.data.pointer("/total/metrics/Ir"));
    let count = count.and_then(|ir| ir.pointer("/values/new")).and_then(serde_json::Value::as_u64);
    count.map(|count| (summary.function_name, count)).ok_or("no count of instructions in it".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_gives_the_functions_instructions() {
        let text = r#"{"function_name": "book_add", "id": "steps", "profiles": [{"tool": "Callgrind",
            "data": {"total": {"metrics": {"Ir": {"values": {"new": 714111, "old": 5}}}}}}]}"#;
        assert_eq!(parse(text), Ok(("book_add".to_owned(), 714_111)));
        assert!(parse(&text.replace("Callgrind", "DHAT")).is_err());
        assert!(parse(&text.replace("714111", "\"x\"")).is_err());
        assert!(parse("{}").is_err());
    }

    #[test]
    fn summaries_are_found_in_folders_below() {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, count) in [("book_add", 5), ("line_seal", 7)] {
            let below = folder.path().join("costs/counts").join(name);
            std::fs::create_dir_all(&below).expect("creates");
            let summary = serde_json::json!({"function_name": name, "profiles": [{"tool": "Callgrind",
                "data": {"total": {"metrics": {"Ir": {"values": {"new": count}}}}}}]});
            std::fs::write(below.join("summary.json"), summary.to_string()).expect("writes");
            std::fs::write(below.join("callgrind.out"), "x").expect("writes");
        }
        let mut counts = Counts::new();
        read(folder.path(), &mut counts).expect("two summaries");
        assert_eq!(counts, Counts::from([("book_add".to_owned(), 5), ("line_seal".to_owned(), 7)]));
    }

    #[test]
    fn the_runner_has_the_version_of_the_library() {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml");
        let text = std::fs::read_to_string(manifest).expect("the workspace's manifest");
        assert!(text.contains(&format!("gungraun = \"={RUNNER_VERSION}\"")));
    }

    #[test]
    fn without_a_runner_it_is_said_how_to_get_one() {
        let runner = PathBuf::from("/nonexistent/gungraun-runner");
        let places = Places { runner, ..Places::here() };
        let error = places.count(Path::new(".")).expect_err("no runner").to_string();
        assert!(error.contains("cargo install --locked --root target/tools gungraun-runner"), "{error}");
    }
}
