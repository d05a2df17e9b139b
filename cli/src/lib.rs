//! What the commands of the project have in common: man pages and shell completions, out of their own descriptions; and
//! printing that survives its reader ([`macro@println`], [`macro@print`], [`macro@eprintln`]).
//!
//! A command flattens [`Manual`] into its subcommands and hands it its own description:
//!
//! ```
//! use clap::{CommandFactory, Parser, Subcommand};
//!
//! #[derive(Parser)]
//! #[command(name = "example")]
//! struct Arguments {
//!     #[command(subcommand)]
//!     command: Command,
//! }
//!
//! #[derive(Subcommand)]
//! enum Command {
//!     #[command(flatten)]
//!     Manual(cli::Manual),
//! }
//!
//! let Command::Manual(manual) = Arguments::parse_from(["example", "completions", "bash"]).command;
//! let mut script = Vec::new();
//! manual.print(Arguments::command(), &mut script)?;
//! assert!(String::from_utf8_lossy(&script).contains("complete -F"));
//! # Ok::<(), std::io::Error>(())
//! ```

#![forbid(unsafe_code)]

use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use clap::{Command, Subcommand};
use clap_complete::Shell;

mod print;

#[doc(hidden)]
pub use print::{say_error, say_line, say_text};

/// The subcommands that every command has beside its own.
#[derive(Subcommand, Clone, PartialEq, Eq, Debug)]
pub enum Manual {
    /// Print a shell's completions.
    #[command(after_help = "\
Examples (COMMAND is the name of this command):
  COMMAND completions bash > ~/.local/share/bash-completion/completions/COMMAND
  COMMAND completions zsh > ~/.zfunc/_COMMAND          # with ~/.zfunc in fpath
  COMMAND completions fish > ~/.config/fish/completions/COMMAND.fish")]
    Completions {
        /// Which shell.
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Write the man pages, one for this command and one for each subcommand.
    #[command(after_help = "\
Examples (COMMAND is the name of this command):
  COMMAND man ~/.local/share/man/man1 && man COMMAND
  COMMAND man /tmp/pages && man /tmp/pages/COMMAND.1")]
    Man {
        /// The folder to write them to; it is made if it is not there.
        directory: PathBuf,
    },
}

impl Manual {
    /// Does what was asked, for the command that `description` describes. What is to be printed goes to `out`.
    ///
    /// # Errors
    /// What the folder, or `out`, says; the folder is named. That nobody reads `out` any more is no error.
    pub fn print(&self, description: Command, out: &mut impl Write) -> io::Result<()> {
        match self.write(description, out) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            written => written,
        }
    }

    fn write(&self, description: Command, out: &mut impl Write) -> io::Result<()> {
        match self {
            Manual::Completions { shell } => {
                let mut description = description;
                let name = description.get_name().to_owned();
                let mut script = Vec::new();
                clap_complete::generate(*shell, &mut description, name, &mut script);
                out.write_all(&script)
            }
            Manual::Man { directory } => {
                write_pages(description, directory)
                    .map_err(|cause| io::Error::new(cause.kind(), format!("{}: {cause}", directory.display())))?;
                writeln!(out, "written to {}", directory.display())
            }
        }
    }
}

fn write_pages(description: Command, directory: &Path) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    // The subcommand `help` would have a page for each subcommand once more.
    clap_mangen::generate_to(description.disable_help_subcommand(true), directory)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Parser)]
    #[command(name = "example", version, about = "An example.", after_help = "Examples:\n  example sing loudly")]
    struct Arguments {
        #[command(subcommand)]
        _command: Sub,
    }

    #[derive(Subcommand)]
    enum Sub {
        /// Sing.
        Sing {
            /// How.
            how: String,
            /// How often.
            #[arg(long)]
            often: Option<u32>,
        },
        /// Nobody starts this by hand.
        #[command(hide = true)]
        Role,
        #[command(flatten)]
        Manual(Manual),
    }

    #[test]
    fn every_shell_gets_a_script_that_knows_commands_and_options() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish, Shell::Elvish, Shell::PowerShell] {
            let mut script = Vec::new();
            Manual::Completions { shell }.print(Arguments::command(), &mut script).expect("into memory");
            let script = String::from_utf8(script).expect("text");
            for word in ["example", "sing", "often", "completions"] {
                assert!(script.contains(word), "{shell}: no {word}");
            }
        }
    }

    #[test]
    fn there_is_a_page_for_the_command_and_each_subcommand_that_is_shown() {
        let folder = tempfile::tempdir().expect("a folder");
        let directory = folder.path().join("man1");
        let mut said = Vec::new();
        Manual::Man { directory: directory.clone() }.print(Arguments::command(), &mut said).expect("writes");
        let mut names: Vec<String> = std::fs::read_dir(&directory)
            .expect("a folder")
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        assert_eq!(names, ["example-completions.1", "example-man.1", "example-sing.1", "example.1"]);
        let page = std::fs::read_to_string(directory.join("example-sing.1")).expect("a page");
        assert!(page.contains("often") && page.contains("How often"), "{page}");
        let page = std::fs::read_to_string(directory.join("example.1")).expect("a page");
        assert!(page.contains("example sing loudly"), "{page}");
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let directory = file.path().join("man1");
        let manual = Manual::Man { directory: directory.clone() };
        let error = manual.print(Arguments::command(), &mut Vec::new()).expect_err("a file is no folder").to_string();
        assert!(error.contains(&directory.display().to_string()), "{error}");
    }
}
