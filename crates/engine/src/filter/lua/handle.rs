//! What a script sees of a stream: the objects behind Envoy's stream handle.
//!
//! They hold what they show themselves: a script may keep them longer than the stream lives.

use std::cell::RefCell;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::rc::Rc;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mlua::{LuaString, MetaMethod, UserData, UserDataMethods, Variadic};
use towpath_proto::head::{HeaderName, Version};
use towpath_proto::{Address, Head};

use super::entries::{Configured, Entries, Map, Place};
use super::info::{ConnectionInfo, Info};
use super::keys::Key;
use super::machine::Budget;
use super::tls::Tls;
use crate::filter::WantedHost;
use crate::filter::notes::{NoteLevel, Notes};
use crate::format::Facts;
use crate::proxied::Proxied;
use crate::record::DownstreamTls;
use crate::stream_info::{FilterMetadata, StreamInfo};

/// One side of a stream, shared by all objects that show it.
#[derive(Debug, Default)]
pub(super) struct Shown {
    /// Its head, while the script runs.
    pub(super) head: Head,
    pub(super) is_response: bool,
    /// It is no head: nothing stands before its fields.
    pub(super) is_trailers: bool,
    /// The head has gone on.
    pub(super) is_gone: bool,
    /// The script has changed it.
    pub(super) is_changed: bool,
    /// It wants the route to be chosen anew.
    pub(super) clears_route: bool,
    iterates: bool,
    pub(super) told: Told,
    /// Metadata and state of the stream, while the script runs.
    pub(super) info: Option<StreamInfo>,
    /// The stream's number, if it is traced.
    pub(super) traced: Option<u64>,
    configured: Configured,
    keys: Vec<Key>,
    /// The host that the request is to go to.
    pub(super) wanted: Option<WantedHost>,
}

/// What is known of the stream.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) protocol: &'static str,
    pub(super) local: Option<Address>,
    pub(super) direct: Option<Address>,
    pub(super) remote: Option<Address>,
    pub(super) server_name: Box<str>,
    pub(super) route: Box<str>,
    pub(super) virtual_cluster: Box<str>,
    pub(super) tls: Option<Arc<DownstreamTls>>,
    proxied: Option<Arc<Proxied>>,
    connection: FilterMetadata,
    now: u64,
}

pub(super) type Shared = Rc<RefCell<Shown>>;

impl Shown {
    pub(super) fn new(is_response: bool, configured: Configured) -> Self {
        Self { is_response, configured, ..Self::default() }
    }

    /// Shows a head, and what else is known, for as long as a script runs.
    pub(super) fn show(&mut self, head: &mut Head, facts: &Facts<'_>, request: Option<&Head>) {
        let record = facts.record;
        let version = request.unwrap_or(head).version();
        self.head = std::mem::take(head);
        self.iterates = false;
        self.told = Told {
            protocol: match version {
                Version::Http10 => "HTTP/1.0",
                Version::Http11 => "HTTP/1.1",
                Version::Http2 | _ => "HTTP/2",
            },
            local: record.downstream_local.clone(),
            direct: record.downstream_direct_remote.clone(),
            remote: record.downstream_remote.clone(),
            server_name: record.server_name.as_deref().unwrap_or_default().into(),
            route: facts.route.into(),
            virtual_cluster: facts.virtual_cluster.into(),
            tls: record.downstream_tls.clone(),
            proxied: record.proxied.clone(),
            connection: record.connection_metadata.clone(),
            now: facts.epoch_unix_ns.saturating_add(facts.now.as_nanos()),
        };
        self.show_info(facts);
    }

    /// Shows the stream's metadata and state for as long as a script runs.
    pub(super) fn show_info(&mut self, facts: &Facts<'_>) {
        self.info = facts.info.map(StreamInfo::share);
        self.traced = facts.trace.map(|_| facts.record.stream);
    }

    /// Takes the head back. What a script keeps of the stream shows nothing of it from here on.
    pub(super) fn write_back(&mut self, head: &mut Head) {
        *head = std::mem::take(&mut self.head);
        self.info = None;
    }

    fn change(&mut self) -> mlua::Result<&mut Head> {
        if self.iterates {
            return Err(wrong("header map cannot be modified while iterating"));
        }
        if self.is_gone {
            return Err(wrong("header map can no longer be modified"));
        }
        self.is_changed = true;
        Ok(&mut self.head)
    }

    /// All values of a field, or of what HTTP/2 has as one.
    fn values(&self, name: &str) -> Vec<Vec<u8>> {
        let head = &self.head;
        let one = |value: &[u8]| if value.is_empty() { Vec::new() } else { vec![value.to_vec()] };
        match name {
            _ if self.is_trailers && name.starts_with(':') => Vec::new(),
            ":status" if self.is_response => vec![head.status().to_string().into_bytes()],
            _ if self.is_response && name.starts_with(':') => Vec::new(),
            ":method" => one(head.method_bytes()),
            ":path" => one(head.path()),
            ":authority" | "host" if !self.is_response => one(head.authority()),
            ":scheme" => one(head.scheme()),
            _ => match HeaderName::new(name) {
                Ok(name) => head.get_all(&name).map(<[u8]>::to_vec).collect(),
                Err(_) => Vec::new(),
            },
        }
    }

    fn pairs(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let pseudo: &[&str] = if self.is_response {
            &[":status"]
        } else {
            &[":authority", ":path", ":method", ":scheme"]
        };
        let first = pseudo.iter().flat_map(|name| {
            self.values(name).into_iter().map(|value| (name.as_bytes().to_vec(), value))
        });
        let fields = self.head.iter();
        let fields = fields.map(|it| (it.name_bytes.to_ascii_lowercase(), it.value.to_vec()));
        first.chain(fields).collect()
    }
}

/// The stream handle's own part.
pub(super) struct StreamHandle {
    pub(super) shared: Shared,
    /// Not the whole host, which has the state in which this lies.
    pub(super) notes: Rc<Notes>,
    /// What the filter is called.
    pub(super) name: Arc<str>,
    pub(super) budget: Budget,
}

impl StreamHandle {
    fn place(&self, of: impl FnOnce(&Configured) -> &FilterMetadata) -> Place {
        let metadata = of(&self.shared.borrow().configured).clone();
        Place { metadata, filter: Arc::clone(&self.name) }
    }
}

/// `headers()`, and `trailers()`.
pub(super) struct Headers(pub(super) Shared);

/// `connection()`.
struct Connection(Shared);

/// `importPublicKey()`: it has a key if that could be read.
struct PublicKey(Option<Box<[u8]>>);

/// Hash function, key, signature and its length, text and its length.
type Signed = (LuaString, LuaString, LuaString, usize, LuaString, usize);

/// `body()`, and pieces of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Content(Rc<RefCell<Bytes>>);

#[derive(Debug, Default)]
struct Bytes {
    bytes: Vec<u8>,
    is_changed: bool,
}

impl Content {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Self(Rc::new(RefCell::new(Bytes { bytes, is_changed: false })))
    }

    /// What it is, and whether a script has set it.
    pub(super) fn bytes(&self) -> (Vec<u8>, bool) {
        let content = self.0.borrow();
        (content.bytes.clone(), content.is_changed)
    }

    /// What a script has set since this was last asked.
    pub(super) fn taken_if_changed(&self) -> Option<bytes::Bytes> {
        let mut content = self.0.borrow_mut();
        std::mem::take(&mut content.is_changed).then(|| content.bytes.clone().into())
    }
}

impl UserData for StreamHandle {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("headers", |_, this, ()| Ok(Headers(Rc::clone(&this.shared))));
        methods.add_method("streamInfo", |_, this, ()| Ok(Info(Rc::clone(&this.shared))));
        methods.add_method("connection", |_, this, ()| Ok(Connection(Rc::clone(&this.shared))));
        methods.add_method("log", |_, this, (level, text): (usize, LuaString)| {
            let level = LEVELS.get(level.wrapping_sub(1)).copied().unwrap_or(NoteLevel::Info);
            this.notes.add(level, &text.to_string_lossy());
            Ok(())
        });
        methods.add_method("metadata", |_, this, ()| {
            let names = [&this.name, &Arc::from(USUAL_NAME)];
            let shown = this.shared.borrow();
            Ok(Map(Entries::under(&shown.configured.route, &names)))
        });
        methods.add_method("filterContext", |_, this, ()| {
            Ok(Map(Entries::whole(&this.shared.borrow().configured.context)))
        });
        methods.add_method("connectionStreamInfo", |_, this, ()| {
            let told = &this.shared.borrow().told;
            Ok(ConnectionInfo { proxied: told.proxied.clone(), left: told.connection.clone() })
        });
        methods.add_method(
            "setUpstreamOverrideHost",
            |_, this, (host, strict): (LuaString, Option<bool>)| {
                let host = host.to_string_lossy();
                if !is_ip(&host) {
                    return Err(wrong("host is not a valid IP address"));
                }
                let (address, strict) = (WantedHost::address(&host), strict.unwrap_or(false));
                this.shared.borrow_mut().wanted =
                    Some(WantedHost { address, strict, missing: 503 });
                Ok(())
            },
        );
        methods.add_method("importPublicKey", |_, this, (der, length): (LuaString, usize)| {
            this.budget.spend(OF_A_KEY)?;
            let der = der.as_bytes();
            let der = der.get(..length).ok_or_else(|| wrong("the key is not that long"))?;
            let Some(key) = Key::read(der) else { return Ok(PublicKey(None)) };
            let keys = &mut this.shared.borrow_mut().keys;
            if !keys.iter().any(|known| known.is(der)) {
                if keys.len() >= MOST_KEYS {
                    return Err(wrong("too many keys of one stream"));
                }
                keys.push(key);
            }
            Ok(PublicKey(Some(der.into())))
        });
        methods.add_method(
            "verifySignature",
            |_, this, (hash, key, signature, length, text, whole): Signed| {
                this.budget.spend(OF_A_KEY)?;
                let (signature, text) = (signature.as_bytes(), text.as_bytes());
                let part = signature.get(..length).zip(text.get(..whole));
                let (signature, text) = part.ok_or_else(|| wrong("it is not that long"))?;
                let shown = this.shared.borrow();
                let key = shown.keys.iter().find(|known| known.is(&key.as_bytes()));
                let key = key.ok_or_else(|| wrong("invalid public key"))?;
                let failed = key.verify(&hash.to_string_lossy(), signature, text).err();
                Ok((failed.is_none(), failed))
            },
        );
        methods.add_method("route", |_, this, ()| Ok(this.place(|said| &said.route)));
        methods.add_method("virtualHost", |_, this, ()| Ok(this.place(|said| &said.virtual_host)));
        methods.add_method("timestamp", |_, this, unit: Option<u64>| {
            if unit.unwrap_or(0) != 0 {
                return Err(wrong("timestamp format must be MILLISECOND."));
            }
            Ok(this.shared.borrow().told.now / 1_000_000)
        });
        methods.add_method("timestampString", |_, this, unit: Option<u64>| {
            let now = this.shared.borrow().told.now;
            match unit.unwrap_or(0) {
                0 => Ok((now / 1_000_000).to_string()),
                1 => Ok((now / 1000).to_string()),
                _ => Err(wrong("timestamp format must be MILLISECOND or MICROSECOND.")),
            }
        });
        methods.add_method("base64Escape", |_, _, text: LuaString| {
            Ok(STANDARD.encode(&*text.as_bytes()))
        });
        methods.add_method("clearRouteCache", |_, this, ()| {
            this.shared.borrow_mut().clears_route = true;
            Ok(())
        });
    }
}

const LEVELS: [NoteLevel; 6] = [
    NoteLevel::Trace,
    NoteLevel::Debug,
    NoteLevel::Info,
    NoteLevel::Warn,
    NoteLevel::Error,
    NoteLevel::Critical,
];

impl UserData for Headers {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("get", |lua, this, name: LuaString| {
            let name = name.to_string_lossy().to_ascii_lowercase();
            let values = this.0.borrow().values(&name);
            let joined = (!values.is_empty()).then(|| values.join(&b","[..]));
            joined.map(|value| lua.create_string(value)).transpose().map(any)
        });
        methods.add_method("getAtIndex", |lua, this, (name, index): (LuaString, i64)| {
            let name = name.to_string_lossy().to_ascii_lowercase();
            let values = this.0.borrow().values(&name);
            let value = usize::try_from(index).ok().and_then(|index| values.get(index));
            value.map(|value| lua.create_string(value)).transpose().map(any)
        });
        methods.add_method("getNumValues", |_, this, name: LuaString| {
            let name = name.to_string_lossy().to_ascii_lowercase();
            Ok(this.0.borrow().values(&name).len())
        });
        methods.add_method("add", |_, this, (name, value): (LuaString, LuaString)| {
            let name = field_name(&name)?;
            let value = field_value(&value)?;
            this.0.borrow_mut().change()?.append_named(&name, &value);
            Ok(())
        });
        methods.add_method("replace", |_, this, (name, value): (LuaString, LuaString)| {
            let mut shown = this.0.borrow_mut();
            let is_response = shown.is_response;
            let value = field_value(&value)?;
            let head = shown.change()?;
            replace(head, is_response, &name, &value)
        });
        methods.add_method("remove", |_, this, name: LuaString| {
            let name = field_name(&name)?;
            this.0.borrow_mut().change()?.remove_named(&name);
            Ok(())
        });
        methods.add_method("setHttp1ReasonPhrase", |_, this, phrase: LuaString| {
            let phrase = field_value(&phrase)?;
            let mut shown = this.0.borrow_mut();
            if !shown.is_response || shown.is_trailers {
                return Err(wrong("only the head of a response has a reason phrase"));
            }
            shown.change()?.set_reason(&phrase);
            Ok(())
        });
        methods.add_meta_method(MetaMethod::Pairs, |lua, this, ()| {
            let mut shown = this.0.borrow_mut();
            if shown.iterates {
                return Err(wrong("cannot create a second iterator before completing the first"));
            }
            shown.iterates = true;
            let mut pairs = shown.pairs().into_iter();
            let shared = Rc::clone(&this.0);
            lua.create_function_mut(move |lua, _: mlua::MultiValue| match pairs.next() {
                Some((name, value)) => {
                    Ok((Some(lua.create_string(name)?), Some(lua.create_string(value)?)))
                }
                None => {
                    shared.borrow_mut().iterates = false;
                    Ok((None, None))
                }
            })
        });
    }
}

fn replace(head: &mut Head, is_response: bool, name: &LuaString, value: &[u8]) -> mlua::Result<()> {
    let lower = name.to_string_lossy().to_ascii_lowercase();
    let is_taken = match (&*lower, is_response) {
        (":status", true) => {
            let status = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
            match status.filter(|status| (200..600).contains(status)) {
                Some(status) => {
                    head.set_status(status);
                    true
                }
                None => false,
            }
        }
        (":path", false) => {
            head.set_path(value);
            !value.is_empty()
        }
        (":method", false) => head.set_method(value),
        (":scheme", false) => head.set_scheme(value),
        (":authority" | "host", false) => {
            head.set_authority(value);
            true
        }
        _ => {
            head.set_named(&field_name(name)?, value);
            true
        }
    };
    if is_taken { Ok(()) } else { Err(wrong(&format!("`{lower}` cannot be that"))) }
}

impl UserData for Connection {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("ssl", |_, this, ()| Ok(this.0.borrow().told.tls.clone().map(Tls)));
    }
}

impl UserData for PublicKey {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("get", |lua, this, ()| {
            this.0.as_ref().map(|der| lua.create_string(der)).transpose()
        });
    }
}

/// Whether Envoy would take a host for an IP address, with or without a port.
fn is_ip(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, _)) if !host.ends_with(']') => name,
        _ => host,
    };
    match name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        Some(name) => name.parse::<Ipv6Addr>().is_ok(),
        None => name.parse::<Ipv4Addr>().is_ok(),
    }
}

impl UserData for Content {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        methods.add_method("length", |_, this, ()| Ok(this.0.borrow().bytes.len()));
        methods.add_method("getBytes", |lua, this, (index, length): (i64, i64)| {
            let content = this.0.borrow();
            let (start, count) = (usize::try_from(index), usize::try_from(length));
            let end = start.as_ref().ok().zip(count.ok()).and_then(|(at, it)| at.checked_add(it));
            let range = start.ok().zip(end).and_then(|(start, end)| content.bytes.get(start..end));
            match range {
                Some(bytes) => lua.create_string(bytes),
                None => Err(wrong(
                    "index/length must be >= 0 and (index + length) must be <= buffer size",
                )),
            }
        });
        methods.add_method("setBytes", |_, this, text: LuaString| {
            let bytes = text.as_bytes().to_vec();
            let length = bytes.len();
            *this.0.borrow_mut() = Bytes { bytes, is_changed: true };
            Ok(length)
        });
    }
}

/// A value, or none at all: as in Envoy, what is missing is less than `nil`.
pub(super) fn any<T>(value: Option<T>) -> Variadic<T> {
    value.into_iter().collect()
}

/// The name of a field that may be changed.
pub(super) fn field_name(name: &LuaString) -> mlua::Result<HeaderName> {
    let text = name.to_string_lossy();
    let name = Some(&*text).filter(|name| !name.starts_with(':'));
    let name = name.and_then(|name| HeaderName::new(name).ok());
    name.ok_or_else(|| wrong(&format!("`{text}` cannot be changed in this way")))
}

/// A value that can stand in a head.
pub(super) fn field_value(value: &LuaString) -> mlua::Result<Vec<u8>> {
    let value = value.as_bytes();
    if value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
        return Err(wrong("a value of a header has no line ends"));
    }
    Ok(value.to_vec())
}

pub(super) fn wrong(text: &str) -> mlua::Error {
    mlua::Error::runtime(text)
}

/// Of one stream's side.
const MOST_KEYS: usize = 16;
/// Steps of a script's time that a key costs: a hundred times reading one or verifying with it is all of it.
const OF_A_KEY: u32 = 10;
/// What routes may call the filter in their metadata, whatever its name.
const USUAL_NAME: &str = "envoy.filters.http.lua";
