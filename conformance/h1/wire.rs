//! Messages as a strict peer reads them, written apart from our parser so that it shares no mistake with it.
//!
//! What goes out of Towpath is well-formed without exception, so this takes one spelling of everything. Depends on
//! nothing but the standard library, so that every test can take it by `#[path]`.

/// One final response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Names in lower case.
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    http10: bool,
}

impl Answer {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Whether another response may follow on the same connection.
    pub(crate) fn keeps_alive(&self) -> bool {
        match self.field("connection") {
            Some("close") => false,
            Some("keep-alive") => true,
            _ => !self.http10,
        }
    }
}

/// What came over one connection: whole responses, and why what is behind them is none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers {
    pub(crate) whole: Vec<Answer>,
    pub(crate) rest: Option<String>,
}

/// Reads responses to requests of these methods, all of it when `ended` says that the connection has.
pub(crate) fn answers(mut bytes: &[u8], methods: &[&str], ended: bool) -> Answers {
    let mut found = Answers::default();
    while !bytes.is_empty() {
        let method = methods.get(found.whole.len()).copied().unwrap_or("GET");
        match answer(bytes, method, ended) {
            Ok((Some(answer), rest)) => {
                bytes = rest;
                found.whole.push(answer);
            }
            Ok((None, rest)) => bytes = rest,
            Err(problem) => {
                let seen = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
                found.rest = Some(format!("{problem}: {seen:?}"));
                return found;
            }
        }
    }
    found
}

/// One response and what is behind it; none for an interim one.
fn answer<'a>(
    bytes: &'a [u8],
    method: &str,
    ended: bool,
) -> Result<(Option<Answer>, &'a [u8]), &'static str> {
    let end = find(bytes, b"\r\n\r\n").ok_or("the head is not whole")?;
    let head: String = bytes[..end].iter().map(|&byte| char::from(byte)).collect();
    let rest = &bytes[end + 4..];
    let mut lines = head.split("\r\n");
    let line = lines.next().unwrap_or_default();
    let http10 = line.starts_with("HTTP/1.0 ");
    let digits = line.strip_prefix("HTTP/1.1 ").or_else(|| line.strip_prefix("HTTP/1.0 "));
    let digits = digits.and_then(|line| line.get(..3)).ok_or("no status line")?;
    let status: u16 = digits.parse().map_err(|_| "no status")?;
    let fields: Option<Vec<(String, String)>> = lines
        .map(|line| line.split_once(": "))
        .map(|pair| pair.map(|(name, value)| (name.to_lowercase(), value.to_owned())))
        .collect();
    let fields = fields.ok_or("no field line")?;
    if status < 200 && status != 101 {
        return Ok((None, rest));
    }
    let mut answer = Answer { status, fields, body: Vec::new(), http10 };
    let count = |name: &str| answer.fields.iter().filter(|(known, _)| known == name).count();
    let (lengths, codings) = (count("content-length"), count("transfer-encoding"));
    if lengths + codings > 1 {
        return Err("framed twice");
    }
    let bodiless = method == "HEAD" || matches!(status, 204 | 304);
    if status == 101 || (method == "CONNECT" && (200..300).contains(&status)) {
        answer.body = rest.to_vec();
        return Ok((Some(answer), &[]));
    }
    if bodiless {
        return Ok((Some(answer), rest));
    }
    if codings == 1 {
        let (body, rest) = chunks(rest)?;
        answer.body = body;
        return Ok((Some(answer), rest));
    }
    if let Some(length) = answer.field("content-length") {
        let length: usize = length.parse().map_err(|_| "no length")?;
        let (body, rest) = rest.split_at_checked(length).ok_or("the body is not whole")?;
        answer.body = body.to_vec();
        return Ok((Some(answer), rest));
    }
    if !ended {
        return Err("the body ends with the connection");
    }
    answer.body = rest.to_vec();
    Ok((Some(answer), &[]))
}

/// One whole request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) target: String,
    /// Names in lower case.
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// The first request in the bytes and what is behind it; none when it is not whole yet.
///
/// # Errors
/// Says what is wrong with it.
pub(crate) fn request(bytes: &[u8]) -> Result<Option<(Request, &[u8])>, String> {
    let Some(end) = find(bytes, b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = &bytes[..end];
    let rest = &bytes[end + 4..];
    let printable = |byte: &u8| !byte.is_ascii_control() || matches!(byte, b'\r' | b'\n' | b'\t');
    if !head.iter().all(printable) {
        return Err("a control character".into());
    }
    let head: String = head.iter().map(|&byte| char::from(byte)).collect();
    let mut lines = head.split("\r\n");
    let line: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let [method, target, "HTTP/1.1"] = line[..] else {
        return Err(format!("the request line {line:?}"));
    };
    let mut fields = Vec::new();
    for line in lines {
        let (name, value) =
            line.split_once(": ").ok_or_else(|| format!("the field line {line:?}"))?;
        let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if name.is_empty() || !name.bytes().all(token) || value.contains(['\r', '\n']) {
            return Err(format!("the field line {line:?}"));
        }
        fields.push((name.to_lowercase(), value.to_owned()));
    }
    let values = |wanted: &str| -> Vec<&str> {
        let named = fields.iter().filter(|(name, _)| name == wanted);
        named.map(|(_, value)| value.as_str()).collect()
    };
    if values("host").len() != 1 {
        return Err(format!("hosts {:?}", values("host")));
    }
    let (body, rest) = match (&values("content-length")[..], &values("transfer-encoding")[..]) {
        ([], []) => (Vec::new(), rest),
        ([length], []) if length.bytes().all(|byte| byte.is_ascii_digit()) => {
            let length: usize = length.parse().map_err(|_| format!("the length {length}"))?;
            let Some((body, rest)) = rest.split_at_checked(length) else {
                return Ok(None);
            };
            (body.to_vec(), rest)
        }
        ([], ["chunked"]) => match chunks(rest) {
            Ok(found) => found,
            Err(problem) if problem.ends_with("whole") => return Ok(None),
            Err(problem) => return Err(problem.into()),
        },
        framing => return Err(format!("framed by {framing:?}")),
    };
    let (method, target) = (method.to_owned(), target.to_owned());
    Ok(Some((Request { method, target, fields, body }, rest)))
}

fn chunks(mut bytes: &[u8]) -> Result<(Vec<u8>, &[u8]), &'static str> {
    let mut body = Vec::new();
    loop {
        let end = find(bytes, b"\r\n").ok_or("the chunk's size is not whole")?;
        let digits = std::str::from_utf8(&bytes[..end]).map_err(|_| "no chunk size")?;
        let size = usize::from_str_radix(digits, 16).map_err(|_| "no chunk size")?;
        bytes = &bytes[end + 2..];
        if size == 0 {
            break;
        }
        let (data, rest) = bytes.split_at_checked(size + 2).ok_or("the chunk is not whole")?;
        body.extend_from_slice(&data[..size]);
        if !data.ends_with(b"\r\n") {
            return Err("the chunk does not end where it says");
        }
        bytes = rest;
    }
    loop {
        let end = find(bytes, b"\r\n").ok_or("the trailers are not whole")?;
        bytes = &bytes[end + 2..];
        if end == 0 {
            return Ok((body, bytes));
        }
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}
