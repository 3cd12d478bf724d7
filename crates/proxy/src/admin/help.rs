//! `/` and `/help`.

use std::fmt::Write;

use super::COMMANDS;

/// All commands as text.
pub(super) fn text() -> String {
    let mut text = String::from("admin commands are:\n");
    for command in &COMMANDS {
        let post = if command.mutates { " (POST)" } else { "" };
        let _ = writeln!(text, "  {}{post}: {}", command.path, command.does);
        for (name, does) in command.parameters {
            let _ = writeln!(text, "      {name}: {does}");
        }
    }
    text
}

/// All commands as a page with links and buttons.
pub(super) fn page() -> String {
    let mut page = String::from(HEAD);
    for command in &COMMANDS {
        let path = command.path.trim_start_matches('/');
        let link = if command.mutates {
            format!("<form method=post action='{path}'><button>{path}</button></form>")
        } else {
            let shown = if path.is_empty() { "/" } else { path };
            format!("<a href='/{path}'>{shown}</a>")
        };
        let _ = writeln!(page, "<tr><td>{link}</td><td>{}</td></tr>", command.does);
    }
    page.push_str("</table></body></html>\n");
    page
}

const HEAD: &str = "<!DOCTYPE html>
<html lang='en'><head><title>Towpath admin</title>
<style>body{font-family:sans-serif}td{padding:2px 12px}form{margin:0}</style></head>
<body><h1>Towpath</h1><table>
";
