//! The name that a misspelt one was probably meant to be.

/// "; did you mean `…`?" with the nearest of these names, when it is near and no other is as near; else nothing.
pub(crate) fn did_you_mean<'n>(
    written: &str,
    names: impl IntoIterator<Item = impl AsRef<str> + 'n>,
) -> String {
    let mut nearest = None;
    let mut least = FARTHEST.min(written.len() / 3) + 1;
    for name in names {
        // A distance is at least the difference of the lengths, which costs nothing to see.
        if name.as_ref().len().abs_diff(written.len()) > least {
            continue;
        }
        let distance = strsim::osa_distance(written, name.as_ref());
        if distance < least {
            (nearest, least) = (Some(name), distance);
        } else if distance == least {
            nearest = None;
        }
    }
    nearest.map_or_else(String::new, |name| format!("; did you mean `{}`?", name.as_ref()))
}

/// Edits (a character more, fewer, another, or two exchanged) that one name may be away from another.
const FARTHEST: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_name_is_suggested_where_one_is_nearest_and_near() {
        let names = ["name", "names", "connect_timeout", "type", "tape"];
        for (written, meant) in [
            ("conect_timeout", Some("connect_timeout")),
            ("connect_timeuot", Some("connect_timeout")),
            ("conect_timeot", Some("connect_timeout")),
            ("conect_timot", None),
            ("nam", Some("name")),
            ("namex", None),
            ("typ", Some("type")),
            ("txpe", None),
            ("nm", None),
            ("", None),
        ] {
            let expected =
                meant.map_or_else(String::new, |name| format!("; did you mean `{name}`?"));
            assert_eq!(did_you_mean(written, names), expected, "{written}");
        }
    }
}
