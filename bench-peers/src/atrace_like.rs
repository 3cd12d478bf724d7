//! A layer that behaves as libatrace_rust's does: a marker is written at every enter, exit and event.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

pub(crate) static ON: AtomicBool = AtomicBool::new(false);
static FILE: OnceLock<(File, PathBuf)> = OnceLock::new();

fn instance() -> PathBuf {
    PathBuf::from("/sys/kernel/tracing/instances")
        .join(format!("towpath-peers-{}", std::process::id()))
}

pub(crate) fn open() -> PathBuf {
    let own = instance();
    let marker = std::fs::create_dir(&own).map(|()| own.join("trace_marker"));
    let path = marker.unwrap_or_else(|_| PathBuf::from("/dev/null"));
    let (_, path) = FILE.get_or_init(|| {
        (OpenOptions::new().write(true).open(&path).expect("it can be written"), path)
    });
    path.clone()
}

pub(crate) fn close() {
    let _ = std::fs::remove_dir(instance());
}

fn write(form: char, name: &str) {
    let Some((mut file, _)) = FILE.get().map(|(file, path)| (file, path)) else { return };
    let text = format!("{form}|{}|{name}", std::process::id());
    let _ = file.write(&text.as_bytes()[..text.len().min(1023)]);
}

pub(crate) struct AtraceLike {
    pub(crate) filter: bool,
}

struct Formatted(String);

#[derive(Default)]
struct Text {
    message: String,
    rest: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.rest, ", {name} = {value:?}"),
        };
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for AtraceLike {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        if self.filter { Interest::sometimes() } else { Interest::always() }
    }

    fn enabled(&self, _: &Metadata<'_>, _: Context<'_, S>) -> bool {
        !self.filter || ON.load(Ordering::Acquire)
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if ON.load(Ordering::Acquire) {
            let mut text =
                Text { message: attributes.metadata().name().to_owned(), ..Text::default() };
            attributes.record(&mut text);
            let span = context.span(id).expect("it was just made");
            span.extensions_mut().insert(Formatted(text.message + &text.rest));
        }
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if ON.load(Ordering::Acquire) {
            let mut text = Text::default();
            event.record(&mut text);
            write('I', &(text.message + &text.rest));
        }
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        if ON.load(Ordering::Acquire)
            && let Some(span) = context.span(id)
            && let Some(Formatted(text)) = span.extensions().get::<Formatted>()
        {
            write('B', text);
        }
    }

    fn on_exit(&self, _: &Id, _: Context<'_, S>) {
        if ON.load(Ordering::Acquire) {
            write('E', "");
        }
    }
}
