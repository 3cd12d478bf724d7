//! Text in lines that a terminal shows whole.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

/// Prints a result whose lines are findings: a terminal shows them whole, others get each in one line.
pub(super) fn tell(text: &str) {
    match stdout_columns() {
        Some(width) => super::print(&wrapped(text, width.min(USUAL))),
        None => super::print(text),
    }
}

/// Prints a result that is a text of its own, in short lines wherever it goes.
pub(super) fn tell_in_lines(text: &str) {
    super::print(&wrapped(text, stdout_width()));
}

/// As [`tell_in_lines`], on standard error, where standard output is a command's.
pub(super) fn tell_aside(text: &str) {
    let text = wrapped(text, width_of(io::stderr()).unwrap_or(USUAL).min(USUAL));
    let mut stderr = io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

/// Columns that a result may take on standard output.
pub(super) fn stdout_width() -> usize {
    stdout_columns().unwrap_or(USUAL).min(USUAL)
}

fn stdout_columns() -> Option<usize> {
    let stdout = io::stdout();
    if stdout.is_terminal() { width_of(stdout) } else { None }
}

/// Columns of the terminal that standard error is, or as many as terminals usually have.
pub(super) fn stderr_width() -> usize {
    width_of(io::stderr()).unwrap_or(USUAL)
}

fn width_of(stream: impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    Some(usize::from(size.ws_col)).filter(|width| *width > 0)
}

/// The same words in lines shorter than `width`; what is broken goes on below the words, beside the label.
pub(super) fn wrapped(text: &str, width: usize) -> String {
    text.lines().flat_map(|line| fold(line, width)).map(|line| line + "\n").collect()
}

fn fold(line: &str, width: usize) -> Vec<String> {
    // A row of Markdown is none when it is broken.
    if line.chars().count() < width || line.starts_with('|') {
        return vec![line.to_owned()];
    }
    let label = label_length(line).filter(|length| *length <= width / 2).unwrap_or(0);
    let (head, words) = line.split_at(byte_at(line, label));
    let mut lines = Vec::new();
    let mut current = head.to_owned();
    for word in pieces(words) {
        let is_begun = current.chars().count() > label;
        let length = current.chars().count() + usize::from(is_begun) + word.chars().count();
        if is_begun && length >= width {
            lines.push(std::mem::replace(&mut current, " ".repeat(label)));
        } else if is_begun {
            current.push(' ');
        }
        current += &word;
    }
    lines.push(current);
    lines
}

/// Words, of which a number and its unit are one.
fn pieces(words: &str) -> Vec<String> {
    let is_number = |word: &str| {
        word.trim_start_matches('(').starts_with(|c: char| c.is_ascii_digit())
            && word.ends_with(|c: char| c.is_ascii_digit())
    };
    let is_unit = |word: &str| {
        let unit = word.trim_end_matches([',', ')', ';', ':', '.']);
        UNITS.contains(&unit)
    };
    let mut pieces: Vec<String> = Vec::new();
    for word in words.split(' ').filter(|word| !word.is_empty()) {
        match pieces.last_mut().filter(|last| is_unit(word) && is_number(last)) {
            Some(number) => *number = format!("{number} {word}"),
            None => pieces.push(word.to_owned()),
        }
    }
    pieces
}

/// Where the words begin after indentation and a label, which two blanks or more set apart.
fn label_length(line: &str) -> Option<usize> {
    let characters: Vec<char> = line.chars().collect();
    let is_start = |at: &usize| {
        let blanks = characters[..*at].iter().rev().take_while(|it| **it == ' ').count();
        characters[*at] != ' ' && (blanks >= 2 || blanks == *at)
    };
    (0..characters.len().min(LONGEST_LABEL)).rfind(is_start)
}

fn byte_at(line: &str, characters: usize) -> usize {
    line.char_indices().nth(characters).map_or(line.len(), |(at, _)| at)
}

const UNITS: [&str; 11] = ["ns", "µs", "ms", "s", "%", "B", "KiB", "MiB", "J", "W", "kbit/s"];
/// Wider lines are hard to read, and what is no terminal may be shown on one of this width.
const USUAL: usize = 80;
const LONGEST_LABEL: usize = 36;

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
127.0.0.1:8080: paced arrivals, 10 connections, 3.0 s
  target     123.4 µs CPU per request (too little to tell user from system), 0.98 context switches per request
FAIL  line 3    little's law  29670/s × 5.715 ms = 169.6 requests under way, but concurrency is 200
no label at all in this sentence, which is longer than sixty columns, so that it has to be broken

a-word-that-is-longer-than-a-whole-line-of-sixty-columns-cannot-be-broken-anywhere
";

    #[test]
    fn every_line_fits_and_no_word_is_lost() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        for width in [20, 40, 60, 80, 200] {
            let folded = wrapped(TEXT, width);
            assert_eq!(words(&folded), words(TEXT), "{width}");
            let is_piece = |line: &str| pieces(line.trim()).len() == 1;
            let too_long = |line: &&str| line.chars().count() >= width && !is_piece(line);
            assert_eq!(folded.lines().find(too_long), None, "{width}");
        }
        assert_eq!(wrapped(TEXT, 200), TEXT);
    }

    #[test]
    fn a_number_stays_with_its_unit() {
        let line = "  generator  1 % of a CPU, 33,319 requests per CPU-second, sends late by 3.79 ms (p99.9)\n";
        for width in 30..90 {
            let folded = wrapped(line, width);
            assert!(folded.contains("3.79 ms") && folded.contains("1 %"), "{width}: {folded}");
        }
        assert_eq!(pieces("(3 % to 4 %), 5 apples"), ["(3 %", "to", "4 %),", "5", "apples"]);
    }

    #[test]
    fn what_is_broken_goes_on_beside_its_label() {
        let folded = wrapped(TEXT, 60);
        let target = "  target     123.4 µs CPU per request (too little to tell\n             user from system), 0.98";
        assert!(folded.contains(target), "{folded}");
        assert!(folded.contains("\n                              requests under way"), "{folded}");
    }
}
