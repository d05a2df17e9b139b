//! A stream of text cut into messages: a line each, or the rows of one moment.
//!
//! Lines end with LF or CR LF; the last may end with the stream, if it is whole as far as its content shows. Blank lines are
//! passed over. No more than [`LONGEST_LINE`] bytes are ever held for one.

use std::io::Read;

use protocol::time::Nanos;

use crate::capture::window::Window;
use crate::feed::{FeedError, FeedSource, Message};
use crate::input::Input;
use crate::{depth, lobster, tardis};

/// The longest line; a snapshot of 5,000 levels a side takes a tenth of it.
pub const LONGEST_LINE: usize = 4 << 20;
/// Rows of one moment are one message up to so many bytes.
const LONGEST_GROUP: usize = 8 << 20;
/// Bytes that are asked for at a time, once a line is longer than a window.
const STEP: usize = 1 << 16;
/// A window holds so much without growing.
const WINDOW: usize = 1 << 20;

/// What the lines are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Layout {
    /// LOBSTER's message file: each row is a message.
    Lobster,
    /// Depth diffs: JSON, a line each, the local time in front of it or not.
    Depth,
    /// Tardis-style incremental books: a header, then rows; those of one moment and symbol are one message.
    Tardis,
}

impl Layout {
    /// Whether a line that the stream's end cut off, if it was cut, still shows that it is whole.
    fn is_whole(self, line: &[u8]) -> bool {
        match self {
            Layout::Lobster => lobster::Row::parse(line).is_ok(),
            Layout::Depth => {
                let (_, json) = depth::split_stamp(line);
                crate::text::json::object(json, &mut |_, _| ()).is_some()
            }
            Layout::Tardis => tardis::Row::parse(line).is_ok(),
        }
    }
}

/// Where a line is in what is unread: its content, and where the next one begins.
#[derive(Clone, Copy)]
struct Line {
    start: usize,
    end: usize,
    next: usize,
}

/// The messages of a text.
pub struct LineFile<R = Input> {
    window: Window<R>,
    layout: Layout,
    lenient: bool,
    /// Of the message that was handed out, and the blank lines before it.
    lent: usize,
    delivered: u64,
    first_capture: Option<Nanos>,
    finished: Option<Result<(), FeedError>>,
    warning: Option<FeedError>,
}

impl LineFile<Input> {
    /// The messages in an open file. Reads the header, where there is one, and looks at the first line's time.
    pub fn new(input: Input, layout: Layout, lenient: bool) -> LineFile<Input> {
        let (path, packing) = (input.path().to_owned(), input.packing());
        LineFile::from_window(Window::new(input, &path, packing), layout, lenient)
    }
}

impl<R: Read> LineFile<R> {
    /// The messages of a stream.
    pub fn from_window(window: Window<R>, layout: Layout, lenient: bool) -> LineFile<R> {
        let mut file = LineFile {
            window,
            layout,
            lenient,
            lent: 0,
            delivered: 0,
            first_capture: None,
            finished: None,
            warning: None,
        };
        // What is wrong with the first lines is said when they are asked for.
        if layout == Layout::Tardis
            && let Ok(Some(line)) = file.line(0)
            && tardis::is_header(&file.window.unread()[line.start..line.end])
        {
            file.window.consume(line.next);
        }
        if let Ok(Some(line)) = file.line(0) {
            let text = &file.window.unread()[line.start..line.end];
            file.first_capture = match layout {
                Layout::Lobster => None,
                Layout::Depth => depth::time_of_line(text),
                Layout::Tardis => tardis::Row::parse(text).ok().map(|row| Nanos(row.local_time)),
            };
        }
        file
    }

    /// What the lines are.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// When the first message was received or, where nobody says, made.
    pub fn first_capture(&self) -> Option<Nanos> {
        self.first_capture
    }

    /// Bytes of the uncompressed stream that were dealt with.
    pub fn offset(&self) -> u64 {
        self.window.offset() + self.lent as u64
    }

    /// The next line that is not blank, at `from` in what is unread or behind it.
    fn line(&mut self, from: usize) -> Result<Option<Line>, FeedError> {
        let mut start = from;
        loop {
            let Some(line) = self.raw_line(start)? else { return Ok(None) };
            if line.start < line.end {
                return Ok(Some(line));
            }
            start = line.next;
        }
    }

    /// The line that begins at `start` in what is unread, blank or not.
    fn raw_line(&mut self, start: usize) -> Result<Option<Line>, FeedError> {
        let mut seen = start;
        loop {
            let unread = self.window.unread();
            if let Some(at) = unread[seen..].iter().position(|byte| *byte == b'\n') {
                let end = seen + at;
                return Ok(Some(Line { start, end: without_return(unread, start, end), next: end + 1 }));
            }
            seen = unread.len();
            if seen - start > LONGEST_LINE {
                return Err(self.damaged(start, format!("a line of more than {LONGEST_LINE} bytes")));
            }
            let wanted = seen + if seen < WINDOW { 1 } else { STEP };
            if !self.window.fill(wanted) && self.window.unread().len() == seen {
                self.window.broken()?;
                return self.last_line(start, seen);
            }
        }
    }

    /// What the stream ends with, without an end of line.
    fn last_line(&self, start: usize, end: usize) -> Result<Option<Line>, FeedError> {
        if start == end {
            return Ok(None);
        }
        let unread = self.window.unread();
        let line = Line { start, end: without_return(unread, start, end), next: end };
        if line.start < line.end && !self.layout.is_whole(&unread[line.start..line.end]) {
            return Err(FeedError::Truncated {
                path: self.window.path().to_owned(),
                offset: self.window.offset() + start as u64,
                ordinal: self.delivered + 1,
                needed: (end - start + 1) as u64,
                present: (end - start) as u64,
            });
        }
        Ok(Some(line))
    }

    fn damaged(&self, at: usize, what: String) -> FeedError {
        FeedError::Damaged {
            path: self.window.path().to_owned(),
            offset: self.window.offset() + at as u64,
            ordinal: self.delivered + 1,
            what,
        }
    }

    /// The next message: where it begins and ends in what is unread.
    fn find(&mut self) -> Result<Option<Line>, FeedError> {
        self.window.consume(std::mem::take(&mut self.lent));
        if let Some(finished) = &self.finished {
            return finished.clone().map(|()| None);
        }
        let found = self.line(0).and_then(|line| match line {
            Some(first) if self.layout == Layout::Tardis => self.group(first).map(Some),
            line => Ok(line),
        });
        if let Ok(Some(_)) = found {
            return found;
        }
        let finished = match found {
            Err(error) if self.lenient && error.is_early_end() => {
                self.warning = Some(error);
                Ok(())
            }
            Err(error) => Err(error),
            Ok(_) => Ok(()),
        };
        self.window.drop_rest();
        self.finished = Some(finished.clone());
        finished.map(|()| None)
    }

    /// The rows that belong to the same moment as `first`.
    fn group(&mut self, first: Line) -> Result<Line, FeedError> {
        let mut all = first;
        while all.next - first.start < LONGEST_GROUP {
            // What is wrong with a row behind these is said when it is its turn.
            let Ok(Some(row)) = self.raw_line(all.next) else { break };
            let unread = self.window.unread();
            if !tardis::belong_together(&unread[first.start..first.end], &unread[row.start..row.end]) {
                break;
            }
            (all.end, all.next) = (row.end, row.next);
        }
        Ok(all)
    }
}

/// The end of a line, without the return that may stand there.
fn without_return(bytes: &[u8], start: usize, end: usize) -> usize {
    if bytes[start..end].last() == Some(&b'\r') { end - 1 } else { end }
}

impl<R: Read> FeedSource for LineFile<R> {
    fn next(&mut self) -> Result<Option<Message<'_>>, FeedError> {
        let Some(found) = self.find()? else { return Ok(None) };
        self.delivered += 1;
        self.lent = found.next;
        let (capture, skip) = match self.layout {
            Layout::Lobster => (None, 0),
            Layout::Depth => {
                let line = &self.window.unread()[found.start..found.end];
                let (capture, json) = depth::split_stamp(line);
                (capture, line.len() - json.len())
            }
            Layout::Tardis => {
                let first = self.window.unread()[found.start..found.end].split(|byte| *byte == b'\n').next();
                (first.and_then(|row| tardis::Row::parse(row).ok()).map(|row| Nanos(row.local_time)), 0)
            }
        };
        let offset = self.window.offset() + found.start as u64;
        let bytes = &self.window.unread()[found.start + skip..found.end];
        Ok(Some(Message { ordinal: self.delivered, offset, capture, bytes }))
    }

    fn warning(&self) -> Option<&FeedError> {
        self.warning.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::input::Packing;

    const ROWS: [&str; 3] =
        ["34200.1,1,7,100,5853300,1", "34200.2,4,7,60,5853300,1", "34200.000000003,3,7,40,5853300,-1"];

    fn file(text: &[u8], layout: Layout, lenient: bool) -> LineFile<&[u8]> {
        LineFile::from_window(Window::new(text, Path::new("x.csv"), Packing::Plain), layout, lenient)
    }

    fn all(file: &mut LineFile<&[u8]>) -> (Vec<(u64, String)>, Option<FeedError>) {
        let mut found = Vec::new();
        loop {
            match file.next() {
                Ok(Some(message)) => found.push((message.offset, String::from_utf8_lossy(message.bytes).into_owned())),
                Ok(None) => return (found, None),
                Err(error) => return (found, Some(error)),
            }
        }
    }

    #[test]
    fn lines_end_as_they_like_and_the_last_need_not() {
        for text in
            [ROWS.join("\n"), ROWS.join("\n") + "\n", ROWS.join("\r\n") + "\r\n", ROWS.join("\n\n") + "\n\r\n\n"]
        {
            let mut file = file(text.as_bytes(), Layout::Lobster, false);
            let (found, error) = all(&mut file);
            assert!(error.is_none(), "{error:?}");
            let rows: Vec<&str> = found.iter().map(|(_, row)| row.as_str()).collect();
            assert_eq!(rows, ROWS, "{text:?}");
            for (offset, row) in &found {
                assert!(text[*offset as usize..].starts_with(row));
            }
            assert_eq!(file.next().map(|message| message.is_none()).ok(), Some(true));
        }
    }

    #[test]
    fn a_file_cut_inside_a_line_gives_all_before_it_then_says_where() {
        let text = ROWS.join("\n");
        for cut in 0..text.len() {
            let cut_text = &text.as_bytes()[..cut];
            let whole: Vec<&str> = text[..cut].split('\n').filter(|row| ROWS.contains(row)).collect();
            let rest = text[..cut].rsplit('\n').next().unwrap_or_default();
            let is_cut = !rest.is_empty() && !ROWS.contains(&rest);
            let (found, error) = all(&mut file(cut_text, Layout::Lobster, false));
            assert_eq!(found.iter().map(|(_, row)| row.as_str()).collect::<Vec<_>>(), whole, "cut at {cut}");
            assert_eq!(error.is_some(), is_cut, "cut at {cut}: {error:?}");
            if let Some(error) = error {
                assert_eq!(error.offset() as usize, cut - rest.len(), "cut at {cut}");
                let mut lenient = file(cut_text, Layout::Lobster, true);
                assert_eq!(all(&mut lenient).1.map(|error| error.to_string()), None);
                assert!(lenient.warning().is_some());
            }
        }
    }

    #[test]
    fn a_line_without_end_is_refused_and_not_held() {
        let text = vec![b'1'; LONGEST_LINE + (2 << 20)];
        let (found, error) = all(&mut file(&text, Layout::Lobster, true));
        assert!(found.is_empty());
        assert!(error.is_some_and(|error| error.to_string().contains("a line of more than 4194304 bytes")));
    }

    #[test]
    fn a_line_longer_than_the_window_comes_whole() {
        let long = format!("{{\"x\":\"{}\"}}", "y".repeat(3 << 20));
        let text = format!("1723161253937085768 {long}\n{{\"e\":1}}");
        let mut file = file(text.as_bytes(), Layout::Depth, false);
        let first = file.next().expect("sound").expect("a message");
        assert_eq!((first.capture, first.bytes.len()), (Some(Nanos(1_723_161_253_937_085_768)), long.len()));
        let second = file.next().expect("sound").expect("a message");
        assert_eq!((second.capture, second.bytes), (None, &b"{\"e\":1}"[..]));
    }
}
