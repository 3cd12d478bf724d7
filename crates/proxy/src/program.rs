//! The program: from the command line to an exit code.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use crate::flags::{Flags, Mode, version_line};
use crate::loading;
use crate::log;
use crate::logger::{self, Format};
use crate::serve::serve;

/// Runs `towpath-proxy` with these words, the program's name first. Returns when the process shall end.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let program = arguments
        .first()
        .map_or_else(|| "towpath-proxy".into(), |name| name.to_string_lossy().into_owned());
    match Flags::try_parse_from(arguments) {
        Ok(flags) => finish(run(flags, &program)),
        Err(error) => {
            let wanted = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            // Nothing is left to tell it to when the terminal is gone.
            let _ = error.print();
            if wanted { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
    }
}

fn run(flags: Flags, program: &str) -> Result<(), String> {
    if flags.version {
        return print(&version_line(program));
    }
    if flags.hot_restart_version {
        return print("disabled\n");
    }
    set_up_log(&flags)?;
    let notes = flags.check()?;
    if flags.mode == Mode::Validate {
        let loaded = loading::load(&flags)?;
        drop(loaded);
        let path = flags.config_path.map(|path| path.display().to_string()).unwrap_or_default();
        return print(&format!("configuration '{path}' OK\n"));
    }
    log!(Main, Info, "initializing {program} {}", crate::flags::version());
    for note in notes {
        log!(Main, Debug, "{note}");
    }
    if flags.enable_core_dump {
        allow_core_dump();
    }
    let configuration = loading::load(&flags)?;
    serve(flags, configuration)?;
    log!(Main, Info, "exiting");
    Ok(())
}

fn set_up_log(flags: &Flags) -> Result<(), String> {
    let format = Format::parse(&flags.log_format)?;
    let path = flags.log_path.as_deref();
    logger::set_up(format, path, flags.log_format_escaped).map_err(|error| {
        let path = path.map(|path| path.display().to_string()).unwrap_or_default();
        format!("cannot open the log '{path}': {error}")
    })?;
    logger::set_all(flags.log_level);
    for (component, level) in &flags.component_log_level.levels {
        logger::set_level(*component, *level);
    }
    Ok(())
}

fn allow_core_dump() {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::Dumpable) {
        log!(Main, Warning, "cannot enable core dumps: {error}");
    }
}

fn finish(outcome: Result<(), String>) -> ExitCode {
    let Err(why) = outcome else { return ExitCode::SUCCESS };
    for line in why.lines() {
        log!(Main, Critical, "{line}");
    }
    log!(Main, Info, "exiting");
    ExitCode::FAILURE
}

fn print(text: &str) -> Result<(), String> {
    std::io::stdout().write_all(text.as_bytes()).map_err(|error| format!("cannot write: {error}"))
}
