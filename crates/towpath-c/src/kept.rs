//! What an engine keeps over requests: cookies, responses, hosts that want TLS alone. A library that was built without
//! one of them refuses its option.

use towpath::Client;

use crate::failure::{Failure, Result};

/// Where it is kept, as the options say.
#[derive(Clone, Copy, Default)]
pub(crate) struct Wishes<'a> {
    pub(crate) cookies_path: Option<&'a str>,
    pub(crate) hsts_path: Option<&'a str>,
    pub(crate) cache_path: Option<&'a str>,
    pub(crate) cache_bytes: u64,
    pub(crate) cache_stale_s: u32,
}

/// What is written to files when the app says so.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    #[cfg(feature = "cookies")]
    cookies: Option<(String, towpath::cookies::Jar)>,
    #[cfg(feature = "hsts")]
    hosts: Option<(String, towpath::hsts::Hosts)>,
    #[cfg(feature = "cache")]
    cache: Option<towpath::Cache>,
}

impl Wishes<'_> {
    /// A client that keeps it.
    pub(crate) fn open(self, client: Client) -> Result<(Client, Kept)> {
        if self.cache_path.is_none() && (self.cache_bytes != 0 || self.cache_stale_s != 0) {
            return Err(Failure::argument(
                "cache_path is NULL, and other options of the cache are set",
            ));
        }
        #[cfg(not(feature = "cookies"))]
        refuse(self.cookies_path, "cookies")?;
        #[cfg(not(feature = "hsts"))]
        refuse(self.hsts_path, "hsts")?;
        #[cfg(not(feature = "cache"))]
        refuse(self.cache_path, "cache")?;
        let (client, kept) = (client, Kept::default());
        #[cfg(feature = "cookies")]
        let (client, kept) = self.with_cookies(client, kept)?;
        #[cfg(feature = "hsts")]
        let (client, kept) = self.with_hosts(client, kept)?;
        #[cfg(feature = "cache")]
        let (client, kept) = self.with_cache(client, kept)?;
        Ok((client, kept))
    }

    #[cfg(feature = "cookies")]
    fn with_cookies(self, client: Client, kept: Kept) -> Result<(Client, Kept)> {
        let Some(path) = self.cookies_path else { return Ok((client, kept)) };
        let jar = towpath::cookies::Jar::load(path).map_err(|error| file(path, &error))?;
        Ok((client.cookies(&jar), Kept { cookies: Some((path.to_owned(), jar)), ..kept }))
    }

    #[cfg(feature = "hsts")]
    fn with_hosts(self, client: Client, kept: Kept) -> Result<(Client, Kept)> {
        let Some(path) = self.hsts_path else { return Ok((client, kept)) };
        let hosts = towpath::hsts::Hosts::load(path).map_err(|error| file(path, &error))?;
        Ok((client.hsts(&hosts), Kept { hosts: Some((path.to_owned(), hosts)), ..kept }))
    }

    #[cfg(feature = "cache")]
    fn with_cache(self, client: Client, kept: Kept) -> Result<(Client, Kept)> {
        let Some(path) = self.cache_path else { return Ok((client, kept)) };
        let bytes = if self.cache_bytes == 0 { USUAL_CACHE_BYTES } else { self.cache_bytes };
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let cache = towpath::Cache::open(path, bytes).map_err(|error| file(path, &error))?;
        let stale = std::time::Duration::from_secs(self.cache_stale_s.into());
        let cache = cache.stale_if_error(stale);
        Ok((client.cache(&cache), Kept { cache: Some(cache), ..kept }))
    }
}

impl Kept {
    /// Brings it to its files.
    pub(crate) fn save(&self) -> Result<()> {
        #[cfg(feature = "cookies")]
        if let Some((path, jar)) = &self.cookies {
            jar.save(path).map_err(|error| file(path, &error))?;
        }
        #[cfg(feature = "hsts")]
        if let Some((path, hosts)) = &self.hosts {
            hosts.save(path).map_err(|error| file(path, &error))?;
        }
        #[cfg(feature = "cache")]
        if let Some(cache) = &self.cache {
            cache.flush();
        }
        Ok(())
    }
}

#[cfg(not(all(feature = "cache", feature = "cookies", feature = "hsts")))]
fn refuse(path: Option<&str>, feature: &str) -> Result<()> {
    match path {
        Some(_) => Err(Failure::argument(format!("this library was built without {feature}"))),
        None => Ok(()),
    }
}

#[cfg(any(feature = "cache", feature = "cookies", feature = "hsts"))]
fn file(path: &str, error: &std::io::Error) -> Failure {
    Failure::new(crate::abi::Code::Resource, format!("{path}: {error}"))
}

#[cfg(feature = "cache")]
const USUAL_CACHE_BYTES: u64 = 64 << 20;
