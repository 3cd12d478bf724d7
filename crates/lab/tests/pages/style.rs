//! As much of a browser as the pages' style needs: rules, media, and which declaration of an element counts.

/// What a page is shown on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Medium {
    /// A screen so many pixels wide.
    Screen(f64),
    /// A4 with the margins that browsers give it.
    Paper,
}

impl Medium {
    /// Pixels across.
    pub(crate) fn width(self) -> f64 {
        match self {
            Self::Screen(width) => width,
            Self::Paper => (210.0 - 20.0) / 25.4 * 96.0,
        }
    }

    fn fits(self, condition: &str) -> bool {
        let width_of = |rem: &str| rem.trim_end_matches(')').parse::<f64>().unwrap() * REM;
        match (condition.trim(), self) {
            ("print", medium) => medium == Self::Paper,
            ("(prefers-color-scheme:dark)", _) => false,
            (text, Self::Screen(width)) => {
                let most = text.strip_prefix("screen and (max-width:").unwrap();
                width <= width_of(most.replace("rem", "").as_str())
            }
            (_, Self::Paper) => false,
        }
    }
}

pub(crate) const REM: f64 = 16.0;

/// An element, as far as selectors look.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Element<'e> {
    pub(crate) tag: &'e str,
    pub(crate) class: &'e str,
    pub(crate) is_first: bool,
    /// Classes of what it lies in.
    pub(crate) within: &'e str,
}

impl<'e> Element<'e> {
    pub(crate) fn new(tag: &'e str, class: &'e str, is_first: bool) -> Self {
        Self { tag, class, is_first, within: "" }
    }
}

/// The rules of a page that hold on a medium.
pub(crate) struct Style {
    /// Selector, property, value, whether it is important.
    rules: Vec<(String, String, String, bool)>,
}

impl Style {
    pub(crate) fn of(html: &str, medium: Medium) -> Self {
        let start = html.find("<style>").unwrap() + "<style>".len();
        let mut rest = &html[start..html.find("</style>").unwrap()];
        let mut style = Self { rules: Vec::new() };
        while let Some(open) = rest.find('{') {
            let head = &rest[..open];
            let (inside, behind) = block(&rest[open..]);
            match head.trim().strip_prefix("@media") {
                Some(condition) if medium.fits(condition) => style.add_all(inside),
                Some(_) => {}
                None => style.add(head, inside),
            }
            rest = behind;
        }
        style
    }

    fn add_all(&mut self, mut rest: &str) {
        while let Some(open) = rest.find('{') {
            let (inside, behind) = block(&rest[open..]);
            self.add(&rest[..open], inside);
            rest = behind;
        }
    }

    fn add(&mut self, selectors: &str, declarations: &str) {
        for selector in selectors.split(',') {
            for declaration in declarations.split(';') {
                let Some((property, value)) = declaration.split_once(':') else { continue };
                let value = value.trim();
                let plain = value.trim_end_matches("!important");
                self.rules.push((
                    selector.trim().to_owned(),
                    property.trim().to_owned(),
                    plain.trim().to_owned(),
                    plain != value,
                ));
            }
        }
    }

    /// What counts of a property; `None` where nothing is said.
    pub(crate) fn get(&self, element: Element<'_>, property: &str) -> Option<&str> {
        let matching = self.rules.iter().enumerate().filter_map(|(at, rule)| {
            let (selector, name, value, important) = rule;
            let weight = weight(selector, element).filter(|_| name == property)?;
            Some(((*important, weight, at), value.as_str()))
        });
        matching.max_by_key(|(order, _)| *order).map(|(_, value)| value)
    }

    pub(crate) fn is(&self, element: Element<'_>, property: &str, value: &str) -> bool {
        self.get(element, property) == Some(value)
    }

    /// A length in pixels, of an element in text of `font` pixels.
    pub(crate) fn pixels(&self, element: Element<'_>, property: &str, font: f64) -> Option<f64> {
        self.get(element, property).map(|value| length(value, font))
    }
}

pub(crate) fn length(value: &str, font: f64) -> f64 {
    let number =
        |unit: &str| value.strip_suffix(unit).and_then(|number| number.parse::<f64>().ok());
    let rem = number("rem").map(|it| it * REM);
    let em = number("em").map(|it| it * font);
    rem.or(em).or_else(|| number("px")).or_else(|| number("")).unwrap_or_else(|| panic!("{value}"))
}

/// What stands between a brace and its partner, and what comes after.
fn block(text: &str) -> (&str, &str) {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return (&text[1..at], &text[at + 1..]);
        }
    }
    panic!("a brace is not closed: {text}")
}

/// How much a selector outweighs others, if it names the element. What it lies in is looked at by class alone.
fn weight(selector: &str, element: Element<'_>) -> Option<(u32, u32)> {
    let (above, own) = selector.rsplit_once(' ').unwrap_or(("", selector));
    let parts = above.split(' ').count() as u32;
    let is_within = |class: &str| element.within.split(' ').any(|it| it == class);
    if above.split(' ').filter_map(|it| it.strip_prefix('.')).any(|class| !is_within(class)) {
        return None;
    }
    let (own, wants_first) = match own.strip_suffix(":first-child") {
        Some(own) => (own, true),
        None => (own, false),
    };
    let (tag, class) = own.split_once('.').unwrap_or((own, ""));
    let has = class.is_empty() || element.class.split(' ').any(|it| it == class);
    let fits = (tag.is_empty() || tag == "*" || tag == element.tag)
        && has
        && (!wants_first || element.is_first);
    let classes = u32::from(!class.is_empty()) + u32::from(wants_first);
    fits.then_some((classes, parts + u32::from(!tag.is_empty() && tag != "*")))
}
