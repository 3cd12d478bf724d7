//! Categories (a 64-bit mask) and levels: what a recording keeps.

use std::fmt;
use std::sync::{Mutex, PoisonError};

/// One or more of 64 categories.
///
/// The low bits are `ATrace`'s tags, so that one mask serves both; bits 32 to 47 are Towpath's own
/// and bits 48 to 62 are free for programs ([`Category::named`]).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Category(u64);

impl Category {
    /// No category: nothing is kept.
    pub const NONE: Self = Self(0);
    /// Every category.
    pub const ALL: Self = Self(u64::MAX);
    /// Kept by every recording that keeps anything.
    pub const ALWAYS: Self = Self(1);
    /// The program's own work; what `tracing` events belong to unless told otherwise.
    pub const APP: Self = Self(1 << 12);
    /// Sockets and bytes.
    pub const NETWORK: Self = Self(1 << 21);
    /// The life of one request.
    pub const REQUEST: Self = Self(1 << 32);
    /// The life of one connection, with its handshakes.
    pub const CONNECTION: Self = Self(1 << 33);
    /// Parsing and encoding protocols.
    pub const PROTOCOL: Self = Self(1 << 34);
    /// Choosing and waiting for an upstream.
    pub const UPSTREAM: Self = Self(1 << 35);
    /// Loading and applying configuration.
    pub const CONFIG: Self = Self(1 << 36);
    /// The event loop: wake-ups, batches, submissions.
    pub const DRIVER: Self = Self(1 << 37);
    /// Measurements of the lab.
    pub const LAB: Self = Self(1 << 38);

    /// The category on `bit`, without a name of its own.
    ///
    /// # Panics
    /// When `bit` is above 63; in a `const` this is a build error.
    #[must_use]
    pub const fn bit(bit: u32) -> Self {
        assert!(bit < 64, "a category is one of 64 bits");
        Self(1 << bit)
    }

    /// The categories of a mask.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The mask.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Both sets.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Names this category's bit, for files and for [`Category::parse`]. The first name stays.
    #[must_use]
    pub fn named(self, name: &'static str) -> Self {
        let bit = self.0.trailing_zeros().min(63) as usize;
        let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
        if well_known(bit).is_none() {
            names[bit].get_or_insert(name);
        }
        self
    }

    /// The name of the lowest category of the set.
    #[must_use]
    pub fn name(self) -> &'static str {
        if self.0 == 0 {
            return "none";
        }
        let bit = self.0.trailing_zeros() as usize;
        let named = || NAMES.lock().unwrap_or_else(PoisonError::into_inner)[bit];
        well_known(bit).or_else(named).unwrap_or("other")
    }

    /// Reads `all`, `none`, names, bit numbers (`b12`) and masks (`0x400000`), separated by commas or blanks.
    ///
    /// # Errors
    /// Names the first word that is none of these.
    pub fn parse(text: &str) -> Result<Self, UnknownCategory> {
        let words = text.split([',', ' ']).filter(|word| !word.is_empty());
        words.map(parse_word).try_fold(Self::NONE, |all, one| Ok(all.and(one?)))
    }
}

fn parse_word(word: &str) -> Result<Category, UnknownCategory> {
    let unknown = || UnknownCategory(word.chars().take(64).collect());
    match word {
        "all" | "*" => return Ok(Category::ALL),
        "none" => return Ok(Category::NONE),
        _ => {}
    }
    if let Some(mask) = word.strip_prefix("0x") {
        return u64::from_str_radix(mask, 16).map(Category).map_err(|_| unknown());
    }
    if let Some(bit) = word.strip_prefix('b').and_then(|digits| digits.parse::<u32>().ok()) {
        return if bit < 64 { Ok(Category(1 << bit)) } else { Err(unknown()) };
    }
    if let Some(&(_, bit)) = LONG.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)) {
        return Ok(Category(1 << bit));
    }
    let names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let found = (0..64).find(|&bit| {
        well_known(bit).or(names[bit]).is_some_and(|name| name.eq_ignore_ascii_case(word))
    });
    found.map(|bit| Category(1 << bit)).ok_or_else(unknown)
}

static NAMES: Mutex<[Option<&'static str>; 64]> = Mutex::new([None; 64]);

/// Names of `ATrace`'s tags, as the `atrace` command spells them.
const TAGS: [&str; 28] = [
    "always", "gfx", "input", "view", "webview", "wm", "am", "sm", "audio", "video", "camera",
    "hal", "app", "res", "dalvik", "rs", "bionic", "power", "pm", "ss", "database", "network",
    "adb", "vibrator", "aidl", "nnapi", "rro", "thermal",
];
/// Other spellings of tags whose names in programs are longer.
const LONG: [(&str, usize); 8] = [
    ("graphics", 1),
    ("windowmanager", 5),
    ("activitymanager", 6),
    ("syncmanager", 7),
    ("sync", 7),
    ("resources", 13),
    ("packagemanager", 18),
    ("systemserver", 19),
];
const OURS: [&str; 7] =
    ["request", "connection", "protocol", "upstream", "config", "driver", "lab"];
const OURS_FIRST: usize = 32;

fn well_known(bit: usize) -> Option<&'static str> {
    TAGS.get(bit).or_else(|| OURS.get(bit.checked_sub(OURS_FIRST)?)).copied()
}

impl fmt::Debug for Category {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Category({:#x})", self.0)
    }
}

/// A word that is no category.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownCategory(String);

impl fmt::Display for UnknownCategory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown trace category {:?}", self.0)
    }
}

impl std::error::Error for UnknownCategory {}

/// How important an event is; a recording keeps a level and everything more important.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Something failed.
    Error,
    /// Something is suspicious.
    Warn,
    /// What an operator wants to see. The macros use it unless told otherwise.
    Info,
    /// What a developer wants to see.
    Debug,
    /// Everything.
    Trace,
}

impl Level {
    /// All levels, the most important first.
    pub const ALL: [Self; 5] = [Self::Error, Self::Warn, Self::Info, Self::Debug, Self::Trace];

    /// Its name, as it is read.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

impl std::str::FromStr for Level {
    type Err = UnknownCategory;

    fn from_str(text: &str) -> Result<Self, UnknownCategory> {
        let named = Self::ALL.into_iter().find(|level| level.name() == text);
        named.ok_or_else(|| UnknownCategory(text.chars().take(64).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_masks_and_bits_are_read() {
        assert_eq!(
            Category::parse("network,app request"),
            Ok(Category::NETWORK.and(Category::APP).and(Category::REQUEST))
        );
        assert_eq!(Category::parse("0x200000"), Ok(Category::NETWORK));
        assert_eq!(Category::parse("b63,b0"), Ok(Category::from_bits(1 << 63 | 1)));
        assert_eq!(Category::parse("Graphics"), Category::parse("gfx"));
        assert_eq!(Category::parse(""), Ok(Category::NONE));
        assert_eq!(Category::parse("all"), Ok(Category::ALL));
    }

    #[test]
    fn what_is_no_category_is_named() {
        for word in ["nosuch", "b64", "0x", "0xg", "b-1", "bx", "0x10000000000000000"] {
            let text = format!("app,{word}");
            assert_eq!(Category::parse(&text), Err(UnknownCategory(word.to_owned())), "{word}");
        }
    }

    #[test]
    fn every_name_leads_back_to_its_bit() {
        for bit in (0..64).filter(|&bit| well_known(bit).is_some()) {
            let category = Category(1 << bit);
            assert_eq!(Category::parse(category.name()), Ok(category));
        }
        let own = Category::bit(50).named("mine");
        assert_eq!((own.name(), Category::parse("mine")), ("mine", Ok(own)));
        assert_eq!(Category::bit(50).named("other").name(), "mine", "the first name stays");
        assert_eq!(Category::NETWORK.named("other").name(), "network");
        assert_eq!((Category::bit(51).name(), Category::NONE.name()), ("other", "none"));
    }
}
