//! The macros: a static callsite, the static check, and then the call.

/// Begins a span of this thread that ends when the guard is dropped.
///
/// `span!(CATEGORY, "name")`, with values `span!(CATEGORY, "name", bytes = n, peer = text)`, and with a level
/// other than [`Level::Info`](crate::Level) as `span!(level = Level::Debug, CATEGORY, "name")`. A value that is a plain
/// variable needs only its name. Up to two numbers, flags, interned texts or flows take one 32-byte record.
///
/// ```
/// use towpath_trace::{Category, Flow, span};
/// let bytes = 512;
/// let _span = span!(Category::NETWORK, "send", bytes, flow = Flow::through(7));
/// ```
/// A name that is known only at run time follows `dyn`; it is copied into the ring:
/// `span!(CATEGORY, dyn name, bytes = n)`.
#[macro_export]
macro_rules! span {
    (level = $level:expr, $category:expr, dyn $name:expr $(, $key:ident $(= $value:expr)?)* $(,)?) => {{
        $crate::callsite!(CALLSITE, $level, $category, "" $(, $key)*);
        if $crate::enabled($category, $level) {
            $crate::Span::begin_named(
                &CALLSITE,
                ::core::convert::AsRef::<str>::as_ref(&$name),
                [$($crate::value_of!($key $(= $value)?)),*],
            )
        } else {
            $crate::Span::off()
        }
    }};
    ($category:expr, dyn $name:expr $(, $($rest:tt)*)?) => {
        $crate::span!(level = $crate::Level::Info, $category, dyn $name $(, $($rest)*)?)
    };
    (level = $level:expr, $category:expr, $name:expr $(, $key:ident $(= $value:expr)?)* $(,)?) => {{
        $crate::callsite!(CALLSITE, $level, $category, $name $(, $key)*);
        if $crate::enabled($category, $level) {
            $crate::Span::begin(&CALLSITE, [$($crate::value_of!($key $(= $value)?)),*])
        } else {
            $crate::Span::off()
        }
    }};
    ($category:expr, $name:expr $(, $($rest:tt)*)?) => {
        $crate::span!(level = $crate::Level::Info, $category, $name $(, $($rest)*)?)
    };
}

/// A span named after the function it stands in: `let _span = function!(CATEGORY);`.
///
/// ```
/// use towpath_trace::{Category, function};
/// fn resolve() {
///     let _span = function!(Category::NETWORK);
/// }
/// # resolve();
/// ```
#[macro_export]
macro_rules! function {
    ($category:expr) => {{
        fn inside() -> &'static str {
            fn name_of<T>(_: T) -> &'static str {
                ::core::any::type_name::<T>()
            }
            name_of(inside)
        }
        static CALLSITE: $crate::Callsite =
            $crate::Callsite::of_function(inside, $category, ::core::file!(), ::core::line!());
        if $crate::enabled($category, $crate::Level::Info) {
            $crate::Span::begin(&CALLSITE, [])
        } else {
            $crate::Span::off()
        }
    }};
}

/// A point in time: `mark!(CATEGORY, "name", key = value, …)`, with `level = …` in front as in [`span!`].
#[macro_export]
macro_rules! mark {
    (level = $level:expr, $category:expr, dyn $name:expr $(, $key:ident $(= $value:expr)?)* $(,)?) => {{
        $crate::callsite!(CALLSITE, $level, $category, "" $(, $key)*);
        if $crate::enabled($category, $level) {
            $crate::emit::mark_named(
                &CALLSITE,
                ::core::convert::AsRef::<str>::as_ref(&$name),
                [$($crate::value_of!($key $(= $value)?)),*],
            );
        }
    }};
    ($category:expr, dyn $name:expr $(, $($rest:tt)*)?) => {
        $crate::mark!(level = $crate::Level::Info, $category, dyn $name $(, $($rest)*)?)
    };
    (level = $level:expr, $category:expr, $name:expr $(, $key:ident $(= $value:expr)?)* $(,)?) => {{
        $crate::callsite!(CALLSITE, $level, $category, $name $(, $key)*);
        if $crate::enabled($category, $level) {
            $crate::emit::mark(&CALLSITE, [$($crate::value_of!($key $(= $value)?)),*]);
        }
    }};
    ($category:expr, $name:expr $(, $($rest:tt)*)?) => {
        $crate::mark!(level = $crate::Level::Info, $category, $name $(, $($rest)*)?)
    };
}

/// A number as it stands: `counter!(CATEGORY, "open connections", n)`. Integers and floats. A unit may follow:
/// `counter!(CATEGORY, "received", n, unit = "bytes")`.
#[macro_export]
macro_rules! counter {
    ($category:expr, $name:expr, $value:expr, unit = $unit:expr $(,)?) => {{
        static CALLSITE: $crate::Callsite = $crate::Callsite::new(
            $name,
            $category,
            $crate::Level::Info,
            &["value"],
            ::core::file!(),
            ::core::line!(),
        )
        .with_unit($unit);
        if $crate::enabled($category, $crate::Level::Info) {
            $crate::emit::counter_value(&CALLSITE, $value);
        }
    }};
    ($category:expr, $name:expr, $value:expr $(,)?) => {{
        $crate::callsite!(CALLSITE, $crate::Level::Info, $category, $name, value);
        if $crate::enabled($category, $crate::Level::Info) {
            $crate::emit::counter_value(&CALLSITE, $value);
        }
    }};
}

/// Begins a span on a [`Track`](crate::Track) and answers an [`AsyncSpan`](crate::AsyncSpan), which ends when dropped,
/// on whatever thread: `async_span!(CATEGORY, "name", track, key = value, …)`.
#[macro_export]
macro_rules! async_span {
    (level = $level:expr, $category:expr, $name:expr, $track:expr $(, $key:ident $(= $value:expr)?)* $(,)?) => {{
        $crate::callsite!(CALLSITE, $level, $category, $name $(, $key)*);
        if $crate::enabled($category, $level) {
            $crate::AsyncSpan::begin(&CALLSITE, $track, [$($crate::value_of!($key $(= $value)?)),*])
        } else {
            $crate::AsyncSpan::off()
        }
    }};
    ($category:expr, $name:expr, $track:expr $(, $($rest:tt)*)?) => {
        $crate::async_span!(level = $crate::Level::Info, $category, $name, $track $(, $($rest)*)?)
    };
}

/// A mark on a track: `async_mark!(CATEGORY, "name", track, key = value, …)`.
#[macro_export]
macro_rules! async_mark {
    ($category:expr, $name:expr, $track:expr $(, $key:ident $(= $value:expr)?)* $(,)?) => {{
        $crate::callsite!(CALLSITE, $crate::Level::Info, $category, $name $(, $key)*);
        if $crate::enabled($category, $crate::Level::Info) {
            $crate::emit::async_mark(&CALLSITE, $track, [$($crate::value_of!($key $(= $value)?)),*]);
        }
    }};
}

/// A span on a track whose two times are already known:
/// `complete!(CATEGORY, "connect", track, from, until, key = value, …)` with [`Stamp`](crate::Stamp)s of one clock.
///
/// ```
/// use towpath_trace::{Category, Stamp, Track, complete};
/// let request = Track::new(42);
/// complete!(Category::REQUEST, "route", request, Stamp::monotonic_ns(1_000), Stamp::monotonic_ns(1_800), cluster = 3);
/// ```
#[macro_export]
macro_rules! complete {
    ($category:expr, $name:expr, $track:expr, $from:expr, $until:expr $(, $key:ident $(= $value:expr)?)* $(,)?) => {{
        $crate::callsite!(CALLSITE, $crate::Level::Info, $category, $name $(, $key)*);
        if $crate::enabled($category, $crate::Level::Info) {
            $crate::emit::complete(&CALLSITE, $track, $from, $until, [$($crate::value_of!($key $(= $value)?)),*]);
        }
    }};
}

/// A named static [`Callsite`](crate::Callsite), for begin and end in different functions:
/// `callsite!(REQUEST_SPAN, Level::Info, Category::REQUEST, "request", method, bytes);`
#[macro_export]
macro_rules! callsite {
    ($visibility:vis $callsite:ident, $level:expr, $category:expr, $name:expr $(, $key:ident)* $(,)?) => {
        $visibility static $callsite: $crate::Callsite = $crate::Callsite::new(
            $name,
            $category,
            $level,
            &[$(::core::stringify!($key)),*],
            ::core::file!(),
            ::core::line!(),
        );
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! value_of {
    ($key:ident = $value:expr) => {
        $crate::Value::from($value)
    };
    ($key:ident) => {
        $crate::Value::from($key)
    };
}
