//! The tags: a set of bits, numbered as in Android's `cutils/trace.h`.

use std::fmt;
use std::ops::{
    BitAnd, BitAndAssign, BitOr, BitOrAssign, BitXor, BitXorAssign, Not, Sub, SubAssign,
};

/// One or more tags.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct AtraceTag(u64);

macro_rules! tags {
    ($($name:ident = $bits:expr, $about:literal;)*) => {
        #[expect(non_upper_case_globals, reason = "the names are those of the original")]
        impl AtraceTag {
            $(#[doc = $about] pub const $name: Self = Self($bits);)*
        }

        const NAMES: &[(&str, u64)] = &[$((stringify!($name), $bits)),*];
    };
}

tags! {
    Never = 0, "Never on.";
    Always = 1, "On whenever any is.";
    Graphics = 1 << 1, "Graphics.";
    Input = 1 << 2, "Input.";
    View = 1 << 3, "Views.";
    Webview = 1 << 4, "Web views.";
    WindowManager = 1 << 5, "The window manager.";
    ActivityManager = 1 << 6, "The activity manager.";
    SyncManager = 1 << 7, "The sync manager.";
    Audio = 1 << 8, "Audio.";
    Video = 1 << 9, "Video.";
    Camera = 1 << 10, "The camera.";
    Hal = 1 << 11, "Hardware modules, beside the tag of what they drive.";
    App = 1 << 12, "The application.";
    Resources = 1 << 13, "Loading resources.";
    Dalvik = 1 << 14, "The virtual machine.";
    Rs = 1 << 15, "RenderScript.";
    Bionic = 1 << 16, "The C library.";
    Power = 1 << 17, "Power management.";
    PackageManager = 1 << 18, "The package manager.";
    SystemServer = 1 << 19, "The system server.";
    Database = 1 << 20, "Databases.";
    Network = 1 << 21, "The network.";
    Adb = 1 << 22, "The debug bridge.";
    Vibrator = 1 << 23, "The vibrator.";
    Aidl = 1 << 24, "Calls between processes.";
    Nnapi = 1 << 25, "Neural networks.";
    Rro = 1 << 26, "Resource overlays.";
    Thermal = 1 << 27, "Heat.";
    Last = 1 << 27, "The highest tag.";
    NotReady = 1 << 63, "Tracing has not been set up yet.";
    ValidMask = (1 << 28) - 1, "All tags.";
}

impl AtraceTag {
    /// No tag.
    #[must_use]
    pub const fn empty() -> Self {
        Self(0)
    }

    /// All tags.
    #[must_use]
    pub const fn all() -> Self {
        Self(Self::ValidMask.0 | Self::NotReady.0)
    }

    /// The bits.
    #[must_use]
    pub const fn bits(&self) -> u64 {
        self.0
    }

    /// Tags of these bits, unless some are no tags.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Option<Self> {
        if bits & !Self::all().0 == 0 { Some(Self(bits)) } else { None }
    }

    /// Tags of these bits, without those that are no tags.
    #[must_use]
    pub const fn from_bits_truncate(bits: u64) -> Self {
        Self(bits & Self::all().0)
    }

    /// Tags of these bits, with those that are no tags.
    #[must_use]
    pub const fn from_bits_retain(bits: u64) -> Self {
        Self(bits)
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0 == 0
    }

    /// Whether all of `other` are among these.
    #[must_use]
    pub const fn contains(&self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any of `other` is among these.
    #[must_use]
    pub const fn intersects(&self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Adds tags.
    pub const fn insert(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// Takes tags away.
    pub const fn remove(&mut self, other: Self) {
        self.0 &= !other.0;
    }

    /// Adds tags that are not there and takes away those that are.
    pub const fn toggle(&mut self, other: Self) {
        self.0 ^= other.0;
    }

    /// Adds tags, or takes them away.
    pub const fn set(&mut self, other: Self, value: bool) {
        if value {
            self.insert(other);
        } else {
            self.remove(other);
        }
    }

    /// Whether all tags are there.
    #[must_use]
    pub const fn is_all(&self) -> bool {
        self.contains(Self::all())
    }

    /// Both sets.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Tags of both.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// These without `other`.
    #[must_use]
    pub const fn difference(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Tags of one of the two.
    #[must_use]
    pub const fn symmetric_difference(self, other: Self) -> Self {
        Self(self.0 ^ other.0)
    }

    /// All tags but these.
    #[must_use]
    pub const fn complement(self) -> Self {
        Self::from_bits_truncate(!self.0)
    }

    /// The tag of this name, as it is written in programs.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        NAMES.iter().find(|(known, _)| *known == name).map(|&(_, bits)| Self(bits))
    }

    /// The tags one by one, and at the end the bits that are no tags, if there are any.
    pub fn iter(&self) -> impl Iterator<Item = Self> + use<> {
        let named = self.iter_names().fold(0, |named, (_, tag)| named | tag.0);
        let rest = self.0 & !named;
        self.iter_names().map(|(_, tag)| tag).chain((rest != 0).then_some(Self(rest)))
    }

    /// The tags one by one, with their names.
    pub fn iter_names(&self) -> impl Iterator<Item = (&'static str, Self)> + use<> {
        let bits = self.0;
        let single = NAMES.iter().filter(|(name, bits)| bits.is_power_of_two() && *name != "Last");
        single.filter(move |(_, bit)| bits & bit != 0).map(|&(name, bit)| (name, Self(bit)))
    }
}

impl IntoIterator for AtraceTag {
    type Item = Self;
    type IntoIter = std::vec::IntoIter<Self>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter().collect::<Vec<_>>().into_iter()
    }
}

impl FromIterator<Self> for AtraceTag {
    fn from_iter<T: IntoIterator<Item = Self>>(tags: T) -> Self {
        tags.into_iter().fold(Self::empty(), Self::union)
    }
}

impl Extend<Self> for AtraceTag {
    fn extend<T: IntoIterator<Item = Self>>(&mut self, tags: T) {
        tags.into_iter().for_each(|tag| self.insert(tag));
    }
}

impl BitOr for AtraceTag {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for AtraceTag {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl BitAnd for AtraceTag {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitAndAssign for AtraceTag {
    fn bitand_assign(&mut self, other: Self) {
        self.0 &= other.0;
    }
}

impl BitXor for AtraceTag {
    type Output = Self;
    fn bitxor(self, other: Self) -> Self {
        Self(self.0 ^ other.0)
    }
}

impl BitXorAssign for AtraceTag {
    fn bitxor_assign(&mut self, other: Self) {
        self.0 ^= other.0;
    }
}

impl SubAssign for AtraceTag {
    fn sub_assign(&mut self, other: Self) {
        self.0 &= !other.0;
    }
}

impl Sub for AtraceTag {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl Not for AtraceTag {
    type Output = Self;
    fn not(self) -> Self {
        Self(!self.0 & Self::all().0)
    }
}

impl fmt::Debug for AtraceTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self
            .iter()
            .map(|tag| {
                let name = tag.iter_names().next().map(|(name, _)| name.to_owned());
                name.unwrap_or_else(|| format!("{:#x}", tag.0))
            })
            .collect();
        write!(
            f,
            "AtraceTag({})",
            if words.is_empty() { "Never".to_owned() } else { words.join(" | ") }
        )
    }
}

macro_rules! numbers {
    ($($form:ident),*) => {$(
        impl fmt::$form for AtraceTag {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::$form::fmt(&self.0, f)
            }
        }
    )*};
}

numbers!(Binary, Octal, LowerHex, UpperHex);

impl From<AtraceTag> for crate::Category {
    fn from(tag: AtraceTag) -> Self {
        Self::from_bits(tag.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_a_set() {
        let tags = AtraceTag::App | AtraceTag::Network;
        assert!(tags.contains(AtraceTag::App) && !tags.contains(AtraceTag::App | AtraceTag::Adb));
        assert_eq!(
            (tags & AtraceTag::App, tags - AtraceTag::App),
            (AtraceTag::App, AtraceTag::Network)
        );
        assert_eq!(format!("{tags:?}"), "AtraceTag(App | Network)");
        assert_eq!(format!("{:?}", AtraceTag::Never), "AtraceTag(Never)");
        assert_eq!(AtraceTag::from_bits(1 << 40), None);
        assert_eq!(!AtraceTag::ValidMask, AtraceTag::NotReady);
    }

    #[test]
    fn what_bitflags_gives_a_set_is_there() {
        let mut tags = AtraceTag::App;
        tags.toggle(AtraceTag::App | AtraceTag::Hal);
        assert_eq!(tags, AtraceTag::Hal);
        tags.set(AtraceTag::Adb, true);
        tags.set(AtraceTag::Hal, false);
        tags ^= AtraceTag::Input | AtraceTag::Adb;
        assert_eq!(tags, AtraceTag::Input);
        tags |= AtraceTag::Last;
        tags -= AtraceTag::Input;
        assert_eq!(tags.iter_names().collect::<Vec<_>>(), [("Thermal", AtraceTag::Thermal)]);
        let both = AtraceTag::App | AtraceTag::Network;
        assert_eq!(both.difference(AtraceTag::App), AtraceTag::Network);
        assert_eq!(both.intersection(AtraceTag::App), AtraceTag::App);
        assert_eq!(both.symmetric_difference(AtraceTag::App), AtraceTag::Network);
        assert!(AtraceTag::Never.complement().is_all() && !both.is_all());
        assert_eq!(both.iter().collect::<AtraceTag>(), both);
        assert_eq!(both.into_iter().count(), 2);
        let foreign = AtraceTag::from_bits_retain(1 << 40 | 1);
        assert_eq!(foreign.iter().count(), 2);
        assert_eq!(AtraceTag::from_name("Network"), Some(AtraceTag::Network));
        assert_eq!(AtraceTag::from_name("network"), None);
        assert_eq!(format!("{both:x} {both:#X}"), "201000 0x201000");
    }

    #[test]
    fn tags_and_categories_share_their_numbers() {
        for (tag, category) in [
            (AtraceTag::App, crate::Category::APP),
            (AtraceTag::Network, crate::Category::NETWORK),
            (AtraceTag::Always, crate::Category::ALWAYS),
        ] {
            assert_eq!(crate::Category::from(tag), category);
        }
        assert_eq!(crate::Category::parse("thermal"), Ok(AtraceTag::Last.into()));
    }
}
