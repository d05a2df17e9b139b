//! Opening a capture: plain, gzip or zstd, as one stream of bytes.
//!
//! Compression is recognised by content, never by name, and read through all members or frames. Memory is constant whatever
//! the file's size: nothing is read before it is asked for. A file that cannot be a capture (missing, a directory, empty,
//! compressed in a way that is not read here) is refused when it is opened, with what to do about it.

use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Chain, Cursor, ErrorKind, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;
use zstd::stream::read::Decoder as ZstdDecoder;

/// Bytes of compressed input read at a time.
const COMPRESSED_BUFFER_LEN: usize = 256 << 10;

/// The first bytes of a gzip member: its magic, then deflate, the only method there is.
const GZIP_MAGIC: [u8; 3] = [0x1F, 0x8B, 0x08];

/// The first bytes of a zstd frame, and of a skippable one (whose lowest four bits are free): RFC 8878, 3.1.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];
const SKIPPABLE_MAGIC: [u8; 3] = [0x2A, 0x4D, 0x18];
/// The longest window of a zstd frame, 2^27 bytes: what the zstd command takes too unless it is told otherwise. A frame that
/// claims more is refused before anything is allocated for it.
const ZSTD_WINDOW_LOG: u32 = 27;

/// Compressions that are recognised in order to refuse them: magic, name, the command that undoes it.
const REFUSED_COMPRESSIONS: [(&[u8], &str, &str); 2] =
    [(&[0xFD, b'7', b'z', b'X', b'Z', 0x00], "xz", "xz -d"), (b"BZh", "bzip2", "bzip2 -d")];

/// How many bytes decide what a file is.
const HEAD_LEN: usize = 6;

/// Why a capture could not be opened. Each says what was tried, why it failed, and what to do next.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// There is no such file.
    #[error("{}: there is no such file; check the path (the working directory is {})", path.display(), working_directory())]
    Missing {
        /// What was to be opened.
        path: PathBuf,
    },
    /// The file may not be read.
    #[error("{}: no permission to read it; check its mode and owner (ls -l), or run as a user who may", path.display())]
    Permission {
        /// What was to be opened.
        path: PathBuf,
    },
    /// The path names a directory.
    #[error("{}: this is a directory; name one capture file in it", path.display())]
    Directory {
        /// What was to be opened.
        path: PathBuf,
    },
    /// The file has no bytes.
    #[error("{}: the file is empty (0 bytes); fetch it again", path.display())]
    Empty {
        /// What was to be opened.
        path: PathBuf,
    },
    /// The file is compressed in a way that is not read here.
    #[error("{}: this is {name}, which is not read here (plain, gzip and zstd are); decompress it first: {command}", path.display())]
    Compression {
        /// What was to be opened.
        path: PathBuf,
        /// The compression's name.
        name: &'static str,
        /// The command that undoes it.
        command: &'static str,
    },
    /// The system refused otherwise.
    #[error("{}: cannot be opened: {source}; check that the file and its device are sound", path.display())]
    Io {
        /// What was to be opened.
        path: PathBuf,
        /// The system's cause.
        source: io::Error,
    },
}

fn working_directory() -> String {
    std::env::current_dir().map_or_else(|cause| format!("not readable: {cause}"), |path| path.display().to_string())
}

impl InputError {
    fn io(path: &Path, source: io::Error) -> InputError {
        let path = path.to_owned();
        match source.kind() {
            ErrorKind::NotFound => InputError::Missing { path },
            ErrorKind::PermissionDenied => InputError::Permission { path },
            ErrorKind::IsADirectory => InputError::Directory { path },
            _ => InputError::Io { path, source },
        }
    }
}

/// A capture up to this size, uncompressed, is read into memory before it is published: 2 GiB.
pub const PRELOAD_BYTES: u64 = 2 << 30;

/// What a capture is compressed with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Packing {
    /// Nothing.
    #[default]
    Plain,
    /// gzip, of one member or several.
    Gzip,
    /// zstd, of one frame or several.
    Zstd,
}

impl Packing {
    /// What a file that begins with `head` is compressed with.
    fn of(head: &[u8]) -> Packing {
        match head {
            [a, b, c, ..] if [*a, *b, *c] == GZIP_MAGIC => Packing::Gzip,
            _ if head.starts_with(&ZSTD_MAGIC) => Packing::Zstd,
            [first, rest @ ..] if first & 0xF0 == 0x50 && rest.starts_with(&SKIPPABLE_MAGIC) => Packing::Zstd,
            _ => Packing::Plain,
        }
    }

    /// Behind the name of what is compressed: ` in gzip`, or nothing.
    pub const fn suffix(self) -> &'static str {
        match self {
            Packing::Plain => "",
            Packing::Gzip => " in gzip",
            Packing::Zstd => " in zstd",
        }
    }
}

impl fmt::Display for Packing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Packing::Plain => "plain",
            Packing::Gzip => "gzip",
            Packing::Zstd => "zstd",
        })
    }
}

/// The file with the bytes that were looked at put back in front.
type Whole = Chain<Cursor<Vec<u8>>, File>;

enum Reader {
    Plain(Whole),
    Gzip(Box<MultiGzDecoder<BufReader<Whole>>>),
    Zstd(Box<ZstdDecoder<'static, BufReader<Whole>>>),
    /// Uncompressed already, and in memory.
    Memory(Cursor<Vec<u8>>),
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Reader::Plain(reader) => reader.read(buffer),
            Reader::Gzip(reader) => reader.read(buffer),
            Reader::Zstd(reader) => reader.read(buffer),
            Reader::Memory(reader) => reader.read(buffer),
        }
    }
}

/// An open capture: the uncompressed bytes, by [`Read`].
///
/// Reads are passed on unbuffered (from a buffer of 256 KiB of compressed bytes): ask for large pieces. A compressed stream
/// that ends early gives everything before its end, then [`ErrorKind::UnexpectedEof`]; one that is damaged gives
/// [`ErrorKind::InvalidInput`], [`ErrorKind::InvalidData`] or, for zstd, [`ErrorKind::Other`].
pub struct Input {
    path: PathBuf,
    packing: Packing,
    /// A pipe or the like: what it holds comes when it comes.
    is_stream: bool,
    reader: Reader,
    /// What was looked at and is not read yet, from `peeked_at` on.
    peeked: Vec<u8>,
    peeked_at: usize,
    /// What stopped the look, for the read that comes there.
    deferred: Option<io::Error>,
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Input").field("path", &self.path).field("packing", &self.packing()).finish()
    }
}

impl Input {
    fn new(path: &Path, reader: Reader) -> Input {
        Input {
            path: path.to_owned(),
            packing: Packing::Plain,
            is_stream: false,
            reader,
            peeked: Vec::new(),
            peeked_at: 0,
            deferred: None,
        }
    }

    /// The next `len` bytes, or as many as there are, without reading past them.
    pub fn peek(&mut self, len: usize) -> &[u8] {
        while self.peeked.len() - self.peeked_at < len && self.deferred.is_none() {
            let have = self.peeked.len();
            self.peeked.resize(self.peeked_at + len, 0);
            let outcome = self.reader.read(&mut self.peeked[have..]);
            self.peeked.truncate(have + *outcome.as_ref().unwrap_or(&0));
            match outcome {
                Ok(0) => break,
                Ok(_) => {}
                Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
                Err(cause) => self.deferred = Some(cause),
            }
        }
        let there = &self.peeked[self.peeked_at..];
        &there[..there.len().min(len)]
    }

    /// Opens `path`.
    ///
    /// # Errors
    /// [`InputError`]: missing, not readable, a directory, empty, or another compression than gzip and zstd.
    pub fn open(path: &Path) -> Result<Input, InputError> {
        let mut file = File::open(path).map_err(|cause| InputError::io(path, cause))?;
        let metadata = file.metadata().map_err(|cause| InputError::io(path, cause))?;
        if metadata.is_dir() {
            return Err(InputError::Directory { path: path.to_owned() });
        }
        let mut head = Vec::with_capacity(HEAD_LEN);
        (&mut file).take(HEAD_LEN as u64).read_to_end(&mut head).map_err(|cause| InputError::io(path, cause))?;
        if head.is_empty() {
            return Err(InputError::Empty { path: path.to_owned() });
        }
        for (magic, name, command) in REFUSED_COMPRESSIONS {
            if head.starts_with(magic) {
                return Err(InputError::Compression { path: path.to_owned(), name, command });
            }
        }
        let packing = Packing::of(&head);
        let is_stream = !metadata.is_file();
        let whole = Cursor::new(head).chain(file);
        let buffered = |whole| BufReader::with_capacity(COMPRESSED_BUFFER_LEN, whole);
        let reader = match packing {
            Packing::Plain => Reader::Plain(whole),
            Packing::Gzip => Reader::Gzip(Box::new(MultiGzDecoder::new(buffered(whole)))),
            Packing::Zstd => {
                let decoder = ZstdDecoder::with_buffer(buffered(whole)).and_then(|mut decoder| {
                    decoder.window_log_max(ZSTD_WINDOW_LOG)?;
                    Ok(decoder)
                });
                Reader::Zstd(Box::new(decoder.map_err(|cause| InputError::io(path, cause))?))
            }
        };
        Ok(Input { packing, is_stream, ..Input::new(path, reader) })
    }

    /// Opens `path` and reads all of it into memory, uncompressed, if that is at most `limit` bytes: a publishing loop over
    /// it makes no system call. A larger capture, or one that fails on the way, is streamed: it delivers what is before the
    /// fault, and names it.
    ///
    /// # Errors
    /// [`InputError`], as [`Input::open`].
    pub fn preload(path: &Path, limit: u64) -> Result<Input, InputError> {
        let mut bytes = Vec::new();
        let input = Input::open(path)?;
        let packing = input.packing;
        let whole = input.take(limit.saturating_add(1)).read_to_end(&mut bytes).is_ok();
        if whole && bytes.len() as u64 <= limit {
            return Ok(Input { packing, ..Input::new(path, Reader::Memory(Cursor::new(bytes))) });
        }
        drop(bytes);
        Input::open(path)
    }

    /// Whether it was read into memory as a whole.
    pub fn is_preloaded(&self) -> bool {
        matches!(self.reader, Reader::Memory(_))
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is a pipe or the like, whose bytes come when they come: a long look would wait for them.
    pub fn is_stream(&self) -> bool {
        self.is_stream
    }

    /// What the file is compressed with.
    pub fn packing(&self) -> Packing {
        self.packing
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.peeked_at < self.peeked.len() {
            let n = buffer.len().min(self.peeked.len() - self.peeked_at);
            buffer[..n].copy_from_slice(&self.peeked[self.peeked_at..self.peeked_at + n]);
            self.peeked_at += n;
            return Ok(n);
        }
        match self.deferred.take() {
            Some(cause) => Err(cause),
            None => self.reader.read(buffer),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).expect("into memory");
        encoder.finish().expect("into memory")
    }

    fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
        file.write_all(bytes).expect("written");
        file
    }

    /// All that can be read, and the kind of error that ended it.
    fn read_out(path: &Path) -> (Vec<u8>, Option<ErrorKind>) {
        let mut input = Input::open(path).expect("opens");
        let mut bytes = Vec::new();
        let mut buffer = [0u8; 1000];
        for _ in 0..1_000_000 {
            match input.read(&mut buffer) {
                Ok(0) => return (bytes, None),
                Ok(n) => bytes.extend_from_slice(&buffer[..n]),
                Err(cause) => return (bytes, Some(cause.kind())),
            }
        }
        panic!("more than {} bytes came out", bytes.len());
    }

    fn noise(len: u32) -> Vec<u8> {
        (0..len).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
    }

    #[test]
    fn a_capture_within_the_limit_is_preloaded_and_gives_the_same_bytes() {
        let bytes = noise(100_000);
        for stored in [bytes.clone(), gzip(&bytes)] {
            let file = file(&stored);
            for (limit, preloaded) in [(99_999, false), (100_000, true), (u64::MAX, true)] {
                let mut input = Input::preload(file.path(), limit).expect("opens");
                assert_eq!(input.is_preloaded(), preloaded, "limit {limit}");
                let mut read = Vec::new();
                input.read_to_end(&mut read).expect("whole");
                assert_eq!(read, bytes, "limit {limit}");
            }
        }
        // One that ends early is streamed, so that the fault is met in its place.
        let mut cut = gzip(&bytes);
        cut.truncate(cut.len() / 2);
        let file = file(&cut);
        let mut input = Input::preload(file.path(), u64::MAX).expect("opens");
        assert!(!input.is_preloaded());
        assert!(input.read_to_end(&mut Vec::new()).is_err());
    }

    #[test]
    fn a_look_at_the_beginning_takes_nothing_away() {
        let bytes = noise(1000);
        let cut = &gzip(&bytes)[..300];
        for (stored, whole) in [(bytes.clone(), true), (gzip(&bytes), true), (cut.to_vec(), false)] {
            let file = file(&stored);
            let mut input = Input::open(file.path()).expect("opens");
            assert_eq!(input.peek(7), &bytes[..7]);
            assert_eq!(input.peek(64), &bytes[..64]);
            assert_eq!(input.peek(2), &bytes[..2]);
            let looked = input.peek(5000).to_vec();
            assert!(bytes.starts_with(&looked) && looked.len() > 200, "{} bytes", looked.len());
            let mut read = Vec::new();
            let outcome = input.read_to_end(&mut read);
            assert_eq!((outcome.is_ok(), read), (whole, looked));
        }
    }

    #[test]
    fn a_plain_file_is_read_as_it_is() {
        for len in [1, 2, 3, 5, 6, 7, 100_000] {
            let bytes = noise(len);
            assert_eq!(read_out(file(&bytes).path()), (bytes, None), "length {len}");
        }
    }

    #[test]
    fn gzip_of_several_members_is_read_through_whatever_its_name() {
        let bytes = noise(70_000);
        let members = [gzip(&bytes[..1]), gzip(&bytes[1..40_000]), gzip(b""), gzip(&bytes[40_000..])].concat();
        let file = file(&members);
        assert_eq!(Input::open(file.path()).expect("opens").packing(), Packing::Gzip);
        assert_eq!(read_out(file.path()), (bytes, None));
    }

    #[test]
    fn zstd_of_several_frames_and_skippable_ones_is_read_through() {
        let bytes = noise(70_000);
        let frame = |bytes: &[u8]| zstd::encode_all(bytes, 3).expect("into memory");
        // A skippable frame: its magic, its length, and whatever it likes.
        let skippable = [&[0x53, 0x2A, 0x4D, 0x18][..], &5u32.to_le_bytes(), b"aside"].concat();
        let frames = [
            skippable.clone(),
            frame(&bytes[..1]),
            skippable,
            frame(b""),
            frame(&bytes[1..40_000]),
            frame(&bytes[40_000..]),
        ];
        let file = file(&frames.concat());
        assert_eq!(Input::open(file.path()).expect("opens").packing(), Packing::Zstd);
        assert_eq!(read_out(file.path()), (bytes, None));
    }

    #[test]
    fn a_zstd_that_ends_early_or_is_damaged_gives_what_is_before_and_then_an_error() {
        let bytes = noise(200_000);
        let whole = zstd::encode_all(&bytes[..], 3).expect("into memory");
        for keep in [whole.len() - 1, whole.len() / 2] {
            let (got, end) = read_out(file(&whole[..keep]).path());
            assert_eq!(end, Some(ErrorKind::UnexpectedEof), "kept {keep}");
            assert!(bytes.starts_with(&got), "kept {keep}, got {}", got.len());
        }
        let behind = [&whole[..], b"garbage"].concat();
        let (got, end) = read_out(file(&behind).path());
        assert!(got == bytes && end.is_some(), "{end:?}");
    }

    #[test]
    fn a_zstd_frame_that_claims_a_gigabyte_of_window_is_refused() {
        // Frame header: no single segment, no checksum; a window of 2^30 bytes (exponent 20 above 2^10).
        let claim = [&ZSTD_MAGIC[..], &[0x00, 20 << 3], &[0x01, 0x00, 0x00]].concat();
        let (got, end) = read_out(file(&claim).path());
        assert!(got.is_empty() && end.is_some_and(|kind| kind != ErrorKind::UnexpectedEof), "{end:?}");
    }

    #[test]
    fn a_gzip_that_ends_early_gives_what_is_before_its_end_and_then_an_error() {
        let bytes = noise(200_000);
        let whole = gzip(&bytes);
        for keep in [whole.len() - 1, whole.len() - 8, whole.len() - 9, whole.len() / 2] {
            let (got, end) = read_out(file(&whole[..keep]).path());
            assert_eq!(end, Some(ErrorKind::UnexpectedEof), "kept {keep}");
            assert!(bytes.starts_with(&got) && got.len() > keep / 2, "kept {keep}, got {}", got.len());
        }
    }

    #[test]
    fn what_cannot_be_a_capture_is_refused_with_the_next_step() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let text = |path: &Path| Input::open(path).expect_err("refused").to_string();
        assert!(text(&directory.path().join("absent")).contains("no such file; check the path"));
        assert!(text(directory.path()).contains("a directory; name one capture file"));
        assert!(text(file(b"").path()).contains("empty (0 bytes)"));
        assert!(text(file(&[0xFD, b'7', b'z', b'X', b'Z', 0x00]).path()).contains("xz -d"));
    }

    #[test]
    fn a_file_without_permission_says_so() {
        use std::os::unix::fs::PermissionsExt;
        let file = file(b"x");
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o000)).expect("mode changed");
        // The superuser may read any file: there is nothing to refuse then.
        match Input::open(file.path()) {
            Err(error) => assert!(error.to_string().contains("no permission to read it"), "{error}"),
            Ok(_) => assert!(File::open(file.path()).is_ok()),
        }
        let denied = InputError::io(file.path(), io::Error::from(ErrorKind::PermissionDenied));
        assert!(denied.to_string().contains("no permission to read it"));
    }
}
