//! Checks that the remote agent server can be reached, and gives advice if not. Takes at most three seconds.
//!
//! The usual problem is a gateway in a container whose agent server runs on the host and listens on 127.0.0.1:
//! inside the container, that is the container itself, and from there the host's 127.0.0.1 cannot be reached.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::AUTHORIZATION;
use tokio::net::TcpStream;

use crate::agents::proxy::capabilities;
use crate::config::{ProxyConfig, UpstreamSetting, UrlHost};
use crate::openai::client;

/// Longest time for the whole check.
const PATIENCE: Duration = Duration::from_secs(3);

/// Bytes of an error response that are inspected for its reason.
const ANSWER: usize = 16 * 1024;

/// Advice about a server that could run turns in the background.
const OFFER: &str = ".\n  It could run turns in the background, with `upstream: runs` beside its address: then an answer outlives a broken \
     connection,\n  /stop ends it at once, and its approvals are asked in the room. In exchange it is given the conversation \
     as Talaria\n  remembers it, without the tool calls of earlier turns";

/// Names by which a container reaches its host.
const AROUND: [&str; 3] = ["host.docker.internal", "gateway.docker.internal", "host.containers.internal"];

/// Result of the check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum UpstreamFinding {
    /// All is well, in words.
    Well(String),
    /// A problem with advice. It may be gone when the gateway runs.
    Trouble(String),
    /// The server is there and refuses us; a retry will not help.
    Refused {
        /// The problem.
        message: String,
        /// The next step.
        hint: String,
    },
}

/// Checks that the server is there and accepts our key. `setting` names the setting with its address, for advice.
pub(super) async fn look(proxy: &ProxyConfig, setting: &str) -> UpstreamFinding {
    let lookup = async |name: &str, port| Ok(tokio::net::lookup_host((name, port)).await?.collect());
    let in_container = ["/.dockerenv", "/run/.containerenv"].iter().any(|mark| Path::new(mark).exists());
    let looked = async {
        match connect(proxy, lookup).await {
            Ok(()) => ask(proxy, setting).await,
            Err(missed) => UpstreamFinding::Trouble(missed.words(proxy, setting, in_container)),
        }
    };
    tokio::time::timeout(PATIENCE, looked).await.unwrap_or_else(|_| {
        let address = format!("{}:{}", proxy.url.host(), proxy.url.port());
        UpstreamFinding::Trouble(silent(&address, proxy.url.port()))
    })
}

/// Why no connection was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectFailure {
    /// The name cannot be resolved.
    Unknown,
    /// This address failed with this error.
    At(SocketAddr, io::ErrorKind),
}

/// Connects to the first address that accepts, and disconnects.
async fn connect(
    proxy: &ProxyConfig,
    lookup: impl AsyncFn(&str, u16) -> io::Result<Vec<SocketAddr>>,
) -> Result<(), ConnectFailure> {
    let port = proxy.url.port();
    let addresses = match proxy.url.host() {
        UrlHost::Address(address) => vec![SocketAddr::new(*address, port)],
        UrlHost::Name(name) => lookup(name, port).await.map_err(|_| ConnectFailure::Unknown)?,
    };
    let mut missed = ConnectFailure::Unknown;
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(_) => return Ok(()),
            // The first address is the one that people mean.
            Err(error) if missed == ConnectFailure::Unknown => {
                missed = ConnectFailure::At(address, error.kind())
            }
            Err(_) => {}
        }
    }
    Err(missed)
}

impl ConnectFailure {
    /// The problem and the advice, in one or two sentences.
    fn words(self, proxy: &ProxyConfig, setting: &str, in_container: bool) -> String {
        let (host, port) = (proxy.url.host(), proxy.url.port());
        let around = matches!(host, UrlHost::Name(name) if AROUND.contains(&name.trim_end_matches('.')));
        let (address, kind) = match self {
            Self::Unknown if around => {
                return format!(
                    "the name {host} is not known here. In a container it has to be given: with compose `extra_hosts: \
                     [\"{host}:host-gateway\"]`, else `docker run --add-host {host}:host-gateway`. Outside of one the \
                     agent server of this machine is http://127.0.0.1:{port}"
                );
            }
            Self::Unknown => {
                return format!("the name {host} is not known here; check {setting}");
            }
            Self::At(address, kind) => (address, kind),
        };
        let named = match host {
            UrlHost::Name(name) => format!("{address} ({name})"),
            UrlHost::Address(_) => address.to_string(),
        };
        match kind {
            io::ErrorKind::ConnectionRefused => {}
            io::ErrorKind::TimedOut => return silent(&named, port),
            kind => return format!("{named} cannot be reached: {kind}"),
        }
        let ip = address.ip().to_canonical();
        if ip.is_loopback() {
            return match in_container {
                true => format!(
                    "nothing listens on {named}, which is this container itself; start the agent server in it, or, if it \
                     is on the machine around it, set {setting} to http://host.docker.internal:{port}"
                ),
                false => {
                    format!("nothing listens on {named}; start the agent server, or correct {setting}")
                }
            };
        }
        if is_desktop(ip) {
            return format!(
                "nothing listens on {named}; start the agent server on the machine around the container (with Docker \
                 Desktop it may listen on 127.0.0.1)"
            );
        }
        let (from, bridge) = match around || in_container {
            true => ("a container", ", the address of Docker's bridge"),
            false => ("another machine", ""),
        };
        format!(
            "nothing listens on {named}. An agent server listens on 127.0.0.1 by default, which cannot be reached from \
             {from}: over there set API_SERVER_HOST={ip}{bridge} (or 0.0.0.0, every address), and start it again"
        )
    }
}

/// Advice when nothing came back, not even a refusal.
fn silent(address: &str, port: u16) -> String {
    format!(
        "{address} did not answer within {} seconds; it may be down, or a firewall is in the way: let port {port} \
         through",
        PATIENCE.as_secs()
    )
}

/// Whether this is the address of the host in Docker Desktop.
fn is_desktop(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V4(ip) if ip.octets()[..3] == [192, 168, 65])
}

/// Sends a request that needs the key and runs nothing.
async fn ask(proxy: &ProxyConfig, setting: &str) -> UpstreamFinding {
    let strange = |what: String| {
        UpstreamFinding::Trouble(format!("something listens there, but {what}; check {setting}"))
    };
    let client =
        client::build(&proxy.url, proxy.key.as_ref(), proxy.allow_cleartext, &proxy.timeouts).map_err(|_| ());
    let Ok(client) = client else { return strange("no HTTP client could be made".to_owned()) };
    let mut request = client.get(format!("{}/v1/models", proxy.url.as_str()));
    if let Some(key) = proxy.key.as_ref().and_then(client::bearer) {
        request = request.header(AUTHORIZATION, key);
    }
    let mut response = match request.send().await {
        Ok(response) => response,
        Err(error) if says(&error, client::PUBLIC) => {
            return UpstreamFinding::Trouble(
                "its name leads to a public address, where the key would go in the clear; use `https://`"
                    .to_owned(),
            );
        }
        Err(_) => return strange("it does not answer as an HTTP server does".to_owned()),
    };
    let status = response.status();
    let mut answer = Vec::new();
    while answer.len() < ANSWER
        && let Ok(Some(piece)) = response.chunk().await
    {
        answer.extend_from_slice(&piece);
    }
    let code = serde_json::from_slice::<serde_json::Value>(&answer).ok();
    let code = code.as_ref().and_then(|answer| answer["error"]["code"].as_str());
    let refused = |message: String, hint: &str| UpstreamFinding::Refused { message, hint: hint.to_owned() };
    match (status, proxy.key.is_some()) {
        (StatusCode::FORBIDDEN, _) if code == Some("host_not_allowed") => refused(
            format!("it does not go by the name {}", proxy.url.host()),
            "over there add that name to `server.hosts`",
        ),
        (StatusCode::UNAUTHORIZED, true) => refused(
            "it answers but does not accept the key (401)".to_owned(),
            "set the same at both ends: GATEWAY_PROXY_KEY here, API_SERVER_KEY over there (or there `api.key` in its \
             state folder)",
        ),
        (StatusCode::UNAUTHORIZED, false) => refused(
            "it answers but wants a key (401)".to_owned(),
            "set GATEWAY_PROXY_KEY to what is API_SERVER_KEY over there (or there `api.key` in its state folder)",
        ),
        (status, has_key) if status.is_success() => {
            let words =
                if has_key { "it answers, and accepts the key" } else { "it answers, and wants no key" };
            let offer = if offers_runs(proxy, &client).await { OFFER } else { "" };
            UpstreamFinding::Well(format!("{words}{offer}"))
        }
        (StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED, _) => {
            UpstreamFinding::Well("it answers; whether it accepts the key shows when it is asked".to_owned())
        }
        (status, _) if status.is_redirection() => {
            strange(format!("it sends us elsewhere ({}), where Talaria does not follow", status.as_u16()))
        }
        (status, _) => strange(format!("it answers with status {}", status.as_u16())),
    }
}

/// Whether the server could run turns in the background, and the configuration leaves the choice to us.
async fn offers_runs(proxy: &ProxyConfig, client: &reqwest::Client) -> bool {
    if proxy.upstream != UpstreamSetting::Auto {
        return false;
    }
    let mut request = client.get(format!("{}/v1/capabilities", proxy.url.as_str()));
    if let Some(key) = proxy.key.as_ref().and_then(client::bearer) {
        request = request.header(AUTHORIZATION, key);
    }
    let Ok(response) = request.send().await else { return false };
    let body = capabilities::body(response, capabilities::ANSWER).await;
    matches!(body, Ok(Some(body)) if capabilities::offers_runs(&body))
}

/// Whether these words occur in an error or its sources.
fn says(error: &reqwest::Error, words: &str) -> bool {
    let mut source: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = source {
        if error.to_string().contains(words) {
            return true;
        }
        source = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{AgentSettings, Config, ConfigSources};

    const SETTING: &str = "`agents.helper.url`";

    fn proxy(url: &str) -> ProxyConfig {
        let folder = tempfile::tempdir().unwrap();
        let sources = ConfigSources { folder: folder.path().to_owned(), ..ConfigSources::default() };
        let env = |name: &str| match name {
            "TALARIA_HOME" => Some(folder.path().display().to_string()),
            "GATEWAY_PROXY_URL" => Some(url.to_owned()),
            _ => None,
        };
        match Config::load(&sources, &env).unwrap().agents.default_entry() {
            Some(AgentSettings::Proxy(proxy)) => proxy.clone(),
            other => panic!("not the proxy: {other:?}"),
        }
    }

    /// Advice for a failed connection; `address` is the first one that was tried.
    fn said(url: &str, address: Option<&str>, kind: io::ErrorKind, in_container: bool) -> String {
        let missed = address
            .map_or(ConnectFailure::Unknown, |address| ConnectFailure::At(address.parse().unwrap(), kind));
        missed.words(&proxy(url), SETTING, in_container)
    }

    #[tokio::test]
    async fn a_container_whose_host_refuses_is_told_what_to_bind_there() {
        // A port that was free a moment ago, so connecting to it is really refused.
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let closed = listener.local_addr().unwrap();
        drop(listener);
        let proxy = proxy("http://host.docker.internal:8642");
        let lookup = async |name: &str, port: u16| {
            assert_eq!((name, port), ("host.docker.internal", 8642));
            Ok(vec![closed])
        };
        let missed = connect(&proxy, lookup).await.unwrap_err();
        assert_eq!(missed, ConnectFailure::At(closed, io::ErrorKind::ConnectionRefused));
        // The bridge is not on this machine, but it would answer like this.
        let bridge = "172.17.0.1:8642".parse().unwrap();
        let ConnectFailure::At(_, kind) = missed else { panic!("{missed:?}") };
        insta::assert_snapshot!(ConnectFailure::At(bridge, kind).words(&proxy, SETTING, true), @"nothing listens on 172.17.0.1:8642 (host.docker.internal). An agent server listens on 127.0.0.1 by default, which cannot be reached from a container: over there set API_SERVER_HOST=172.17.0.1, the address of Docker's bridge (or 0.0.0.0, every address), and start it again");
        let unknown = async |_: &str, _: u16| Err(io::ErrorKind::NotFound.into());
        insta::assert_snapshot!(connect(&proxy, unknown).await.unwrap_err().words(&proxy, SETTING, true), @r#"the name host.docker.internal is not known here. In a container it has to be given: with compose `extra_hosts: ["host.docker.internal:host-gateway"]`, else `docker run --add-host host.docker.internal:host-gateway`. Outside of one the agent server of this machine is http://127.0.0.1:8642"#);
    }

    #[test]
    fn every_other_way_of_not_being_there_has_its_own_advice() {
        use io::ErrorKind::{ConnectionRefused, HostUnreachable, TimedOut};
        let here = "http://127.0.0.1:8642";
        insta::assert_snapshot!(said(here, Some("127.0.0.1:8642"), ConnectionRefused, false), @"nothing listens on 127.0.0.1:8642; start the agent server, or correct `agents.helper.url`");
        insta::assert_snapshot!(said(here, Some("127.0.0.1:8642"), ConnectionRefused, true), @"nothing listens on 127.0.0.1:8642, which is this container itself; start the agent server in it, or, if it is on the machine around it, set `agents.helper.url` to http://host.docker.internal:8642");
        let nas = "http://nas.lan:8642";
        insta::assert_snapshot!(said(nas, Some("192.168.1.5:8642"), ConnectionRefused, false), @"nothing listens on 192.168.1.5:8642 (nas.lan). An agent server listens on 127.0.0.1 by default, which cannot be reached from another machine: over there set API_SERVER_HOST=192.168.1.5 (or 0.0.0.0, every address), and start it again");
        insta::assert_snapshot!(said(nas, Some("192.168.1.5:8642"), TimedOut, false), @"192.168.1.5:8642 (nas.lan) did not answer within 3 seconds; it may be down, or a firewall is in the way: let port 8642 through");
        insta::assert_snapshot!(said(nas, Some("192.168.1.5:8642"), HostUnreachable, false), @"192.168.1.5:8642 (nas.lan) cannot be reached: host unreachable");
        insta::assert_snapshot!(said(nas, None, ConnectionRefused, false), @"the name nas.lan is not known here; check `agents.helper.url`");
        let desktop = "http://host.docker.internal:8642";
        insta::assert_snapshot!(said(desktop, Some("192.168.65.254:8642"), ConnectionRefused, true), @"nothing listens on 192.168.65.254:8642 (host.docker.internal); start the agent server on the machine around the container (with Docker Desktop it may listen on 127.0.0.1)");
    }
}
