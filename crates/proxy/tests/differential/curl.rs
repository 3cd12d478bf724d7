//! A client that speaks HTTP/2: curl, and what it says of its answers.

use std::process::Command;

use crate::case::Case;
use crate::client::Heard;
use crate::script;
use crate::wire::Message;

/// Runs curl with each line of options, one after the other. `${url}` stands for the listener.
pub(crate) fn talk(address: &str, case: &Case) -> Heard {
    let mut heard = Heard::default();
    for options in &case.curl {
        let options = String::from_utf8(script::bytes(options)).expect("options are text");
        let options = options.replace("${url}", address);
        let output = Command::new("curl")
            .args(["--silent", "--include", "--insecure", "--max-time", "8", "--globoff"])
            .args(options.split_whitespace().map(|word| word.replace("%20", " ")))
            .output()
            .expect("curl can be run");
        let said = String::from_utf8_lossy(&output.stdout).replace("\r\n", "\n");
        hear(&said, &mut heard);
        heard.lines.push(format!("curl: exit status {:?}", output.status.code()));
    }
    heard
}

/// Takes apart heads, with their fields in order of their names, and what stands behind the last of them.
fn hear(said: &str, heard: &mut Heard) {
    let mut left = said;
    while left.starts_with("HTTP/") {
        let (head, behind) = left.split_once("\n\n").unwrap_or((left, ""));
        let mut fields: Vec<_> = head.lines().map(str::trim_end).collect();
        fields[1..].sort_unstable();
        heard.lines.extend(fields.iter().map(|line| format!("answer: {line}")));
        let is_interim = fields[0].split(' ').nth(1).is_some_and(|status| status.starts_with('1'));
        if !is_interim {
            heard.messages.push(Message { start: fields[0].to_owned(), ..Message::default() });
        }
        // Without a line's end behind it, a body is followed by the next head.
        let next = behind.find("HTTP/").unwrap_or(behind.len());
        heard.lines.extend(behind[..next].lines().map(|line| format!("answer: {line}")));
        left = &behind[next..];
    }
}
