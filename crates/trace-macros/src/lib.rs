//! `#[traced]`: a span of `towpath-trace` for a whole function. Programs use it as `towpath_trace::traced`, whose page
//! has an example.
//!
//! A function is taken apart no further than into what stands before its body, and its body: no parser of the language,
//! and no dependency, is needed for that.
#![forbid(unsafe_code)]

use proc_macro::{Delimiter, Group, Ident, Literal, Span, TokenStream, TokenTree};

/// Makes a span of each call of a function: `#[traced(CATEGORY)]`, with what follows the category in `span!`:
/// `#[traced(CATEGORY, "name", key = value, …)]`. The name is the function's unless given; values may use its
/// arguments.
///
/// The span of an `async fn` begins with its first poll, is on a track of its own, and ends when the function does or
/// its future is dropped.
#[proc_macro_attribute]
pub fn traced(arguments: TokenStream, item: TokenStream) -> TokenStream {
    expand(arguments, item).unwrap_or_else(|(why, at)| {
        let literal = TokenTree::Literal(Literal::string(&why));
        let message = TokenTree::Group(Group::new(Delimiter::Brace, literal.into()));
        path("::core::compile_error!")
            .into_iter()
            .chain([message])
            .map(|token| spanned(token, at))
            .collect()
    })
}

type Refused = (String, Span);

fn expand(arguments: TokenStream, item: TokenStream) -> Result<TokenStream, Refused> {
    let mut function = Function::read(item)?;
    let arguments = Arguments::read(arguments)?;
    let mut words = arguments.category;
    match (arguments.has_name, function.is_async) {
        (true, false) => words.extend(arguments.others),
        (false, false) => {
            words.extend(comma());
            words.extend([function.literal()]);
            words.extend(arguments.others);
        }
        // The track comes behind the name.
        (has_name, true) => {
            let mut others = arguments.others.into_iter();
            words.extend(comma());
            match has_name {
                true => words.extend(others.by_ref().skip(1).take(1)),
                false => words.extend([function.literal()]),
            }
            words.extend(path(", ::towpath_trace::Track::unique()"));
            words.extend(others);
        }
    }
    let maker =
        if function.is_async { "::towpath_trace::async_span!" } else { "::towpath_trace::span!" };
    let guard = Ident::new("span_of_the_function", Span::mixed_site());
    let mut body = path("let");
    body.extend([TokenTree::Ident(guard)]);
    body.extend(path(&format!("= {maker}")));
    body.extend([TokenTree::Group(Group::new(Delimiter::Parenthesis, words))]);
    body.extend(path(";"));
    body.extend(function.body.stream());
    let mut whole = Group::new(Delimiter::Brace, body);
    whole.set_span(function.body.span());
    function.head.extend([TokenTree::Group(whole)]);
    Ok(function.head)
}

/// A function, in front of its body and the body.
struct Function {
    head: TokenStream,
    name: Ident,
    is_async: bool,
    body: Group,
}

impl Function {
    fn read(item: TokenStream) -> Result<Self, Refused> {
        let mut tokens: Vec<TokenTree> = item.into_iter().collect();
        let no_function =
            || ("#[traced] belongs to a function with a body".to_owned(), Span::call_site());
        let is_word = |token: &TokenTree, word: &str| matches!(token, TokenTree::Ident(it) if it.to_string() == word);
        let at = tokens.iter().position(|token| is_word(token, "fn")).ok_or_else(no_function)?;
        let Some(TokenTree::Ident(name)) = tokens.get(at + 1).cloned() else {
            return Err(no_function());
        };
        let Some(TokenTree::Group(body)) = tokens.pop() else { return Err(no_function()) };
        if body.delimiter() != Delimiter::Brace {
            return Err(no_function());
        }
        let before = &tokens[..at];
        if let Some(word) = before.iter().find(|token| is_word(token, "const")) {
            return Err((
                "a `const fn` reads no clock: it cannot be traced".to_owned(),
                word.span(),
            ));
        }
        let is_async = before.iter().any(|token| is_word(token, "async"));
        Ok(Self { head: tokens.into_iter().collect(), name, is_async, body })
    }

    /// Its name as a text.
    fn literal(&self) -> TokenTree {
        let name = self.name.to_string();
        let mut literal = Literal::string(name.strip_prefix("r#").unwrap_or(&name));
        literal.set_span(self.name.span());
        TokenTree::Literal(literal)
    }
}

/// What stands in the attribute.
struct Arguments {
    /// The category, with a level in front if there is one.
    category: TokenStream,
    /// From the comma behind it on.
    others: TokenStream,
    has_name: bool,
}

impl Arguments {
    fn read(arguments: TokenStream) -> Result<Self, Refused> {
        let tokens: Vec<TokenTree> = arguments.into_iter().collect();
        let is_comma =
            |token: &TokenTree| matches!(token, TokenTree::Punct(it) if it.as_char() == ',');
        let next_comma = |from: usize| {
            let found = tokens[from..].iter().position(is_comma);
            found.map_or(tokens.len(), |at| from + at)
        };
        let has_level =
            matches!(tokens.first(), Some(TokenTree::Ident(word)) if word.to_string() == "level");
        let from = if has_level { (next_comma(0) + 1).min(tokens.len()) } else { 0 };
        let end = next_comma(from);
        if end == from {
            let why = "which category? Write #[traced(Category::REQUEST)]";
            return Err((why.to_owned(), Span::call_site()));
        }
        let (category, others) = tokens.split_at(end);
        if let Some(word) = others.get(1).filter(|word| word.to_string() == "dyn") {
            return Err(("a function's span has a constant name".to_owned(), word.span()));
        }
        let has_name = matches!(others.get(1), Some(TokenTree::Literal(it)) if it.to_string().starts_with('"'));
        Ok(Self {
            category: category.iter().cloned().collect(),
            others: others.iter().cloned().collect(),
            has_name,
        })
    }
}

/// Tokens of a text that is known to be some.
fn path(text: &str) -> TokenStream {
    text.parse().unwrap_or_default()
}

fn comma() -> TokenStream {
    path(",")
}

fn spanned(mut token: TokenTree, at: Span) -> TokenTree {
    token.set_span(at);
    token
}
