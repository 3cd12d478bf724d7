use super::*;

#[test]
fn positions_are_of_the_value_and_of_the_key() {
    let root = read("a:\n  b: [x, 'y']\n");
    let Value::Map(entries) = &root.get("a").unwrap().value else { panic!("a map") };
    assert_eq!(entries[0].0.pos, Pos { line: 2, column: 3 });
    let Value::List(items) = &entries[0].1.value else { panic!("a list") };
    assert_eq!(items[1].pos, Pos { line: 2, column: 10 });
}

#[test]
fn quotes_make_strings() {
    let root = read("a: '5'\nb: 5\nc: \"true\"\nd: ! 7\ne: |\n  12\n");
    assert_eq!(root.get("a").unwrap().value, Value::String("5".to_owned()));
    assert_eq!(root.get("b").unwrap().value, Value::Number("5".to_owned()));
    assert_eq!(root.get("c").unwrap().value, Value::String("true".to_owned()));
    assert_eq!(root.get("d").unwrap().value, Value::String("7".to_owned()));
    assert_eq!(root.get("e").unwrap().value, Value::String("12\n".to_owned()));
}

#[test]
fn aliases_are_copies_and_ignored_keys_vanish() {
    let root = read("!ignore x: &a {k: 1}\ny: *a\n");
    assert!(root.get("x").is_none());
    assert_eq!(root.get("y").unwrap().get("k").unwrap().value, Value::Number("1".to_owned()));
}

#[test]
fn billion_laughs_are_refused() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..10 {
        let alias = format!("*a{}", level - 1);
        text += &format!("a{level}: &a{level} [{}]\n", [alias.as_str(); 10].join(", "));
    }
    assert!(error(&text).message.contains("aliases expanded"));
}

#[test]
fn alias_in_its_own_anchor_is_refused() {
    assert_eq!(error("a: &a [*a]\n").pos.line, 1);
}

#[test]
fn depth_is_limited() {
    let nested = |depth: usize| format!("a: {}{}\n", "[".repeat(depth), "]".repeat(depth));
    assert!(parse(&Source::yaml("t", &nested(MAX_DEPTH - 1))).is_ok());
    assert!(parse(&Source::yaml("t", &nested(MAX_DEPTH))).is_err());
    assert!(parse(&Source::yaml("t", &nested(100_000))).is_err());
    let block: String = (0..5_000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    assert!(parse(&Source::yaml("t", &block)).is_err());
}

#[test]
fn aliases_do_not_nest_past_the_depth() {
    let mut text = "a0: &a0 [x]\n".to_owned();
    for level in 1..2_000 {
        text += &format!("a{level}: &a{level} [*a{}]\n", level - 1);
    }
    assert!(error(&text).message.contains("nested deeper"));
}

#[test]
fn of_equal_keys_the_last_one_wins() {
    let text = "a: 1\nb: 2\na: 3\na: 4\nc: {a: 5}\n";
    let Parsed { root, repeated } = parse(&Source::yaml("t", text)).unwrap();
    assert_eq!(root.get("a").unwrap().value, Value::Number("4".to_owned()));
    let Value::Map(entries) = &root.value else { panic!("a map") };
    assert_eq!(entries.len(), 3);
    let lines: Vec<_> = repeated.iter().map(|(key, left_out)| (key.pos.line, *left_out)).collect();
    assert_eq!(lines, [(3, 1), (4, 3)]);
}

#[test]
fn bytes_that_are_not_text_are_refused() {
    let source = Source { bytes: b"a: 1\nb: \xff".to_vec(), ..Source::yaml("t", "") };
    assert_eq!(
        parse(&source).unwrap_err(),
        SyntaxError { pos: Pos { line: 2, column: 4 }, message: "not UTF-8".to_owned() }
    );
}

#[test]
fn second_document_is_refused() {
    assert!(error("a: 1\n---\nb: 2\n").message.contains("only one document"));
}

#[test]
fn empty_text_is_null() {
    for text in ["", "# nothing\n", "---\n"] {
        assert_eq!(read(text).value, Value::Null);
    }
}

#[test]
fn json_is_strict_and_keeps_positions() {
    let text = "{\n\t\"a\": 1.10,\n\t\"b\": \"\\ud83d\\ude00\\/\"}";
    let root = parse(&Source::json("t", text)).unwrap().root;
    assert_eq!(root.get("a").unwrap().value, Value::Number("1.10".to_owned()));
    assert_eq!(root.get("b").unwrap().value, Value::String("\u{1f600}/".to_owned()));
    assert_eq!(root.get("b").unwrap().pos.line, 3);
    let error = parse(&Source::json("t", "{a: 1}")).unwrap_err();
    assert_eq!((error.pos.line, error.pos.column), (1, 2));
}

fn read(text: &str) -> Node {
    parse(&Source::yaml("t", text)).unwrap().root
}

fn error(text: &str) -> SyntaxError {
    parse(&Source::yaml("t", text)).unwrap_err()
}
