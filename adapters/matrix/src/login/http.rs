//! Requests to the homeserver that come before there is a session, or must work without a store.
//!
//! The SDK would need a store for each of them. A new device's store is made only after the homeserver has let us in,
//! and an account whose store is broken must still be able to log out.

use std::time::{Duration, SystemTime};

use matrix_sdk::reqwest::{self, Method, Url, header, redirect};
use matrix_sdk::ruma::http_headers::http_date_to_system_time;
use matrix_sdk::ruma::{OwnedDeviceId, OwnedUserId};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use talaria_platform::{PlatformError, PlatformErrorKind};

use crate::error::LONGEST_PAUSE;
use crate::operator_error::{fatal, trouble};

/// Time limit for connecting.
const CONNECT: Duration = Duration::from_secs(10);

/// Time limit for a request. The SDK's requests use it too, unless they need longer.
pub(crate) const REQUEST: Duration = Duration::from_secs(30);

/// Longest silence of a connection. Longer than any long poll of ours: this ends dead connections.
const SILENCE: Duration = Duration::from_secs(90);

/// Bytes of the longest response. The keys of one device take a kilobyte.
const LONGEST: usize = 1024 * 1024;

/// A client for a homeserver, without a session.
pub(crate) struct HomeserverClient {
    http: reqwest::Client,
    base: Url,
}

/// A refusal by the homeserver.
#[derive(Debug)]
pub(crate) struct HomeserverError {
    /// The status, such as 403.
    pub status: u16,
    /// Matrix' error code, such as `M_FORBIDDEN`; empty if the response was not from a Matrix server.
    pub code: String,
    /// Pause that the homeserver asks for.
    after: Option<Duration>,
}

/// Why a request failed.
#[derive(Debug)]
pub(crate) enum RequestFailure {
    /// No response, or none that a homeserver gives.
    Away(String),
    /// A refusal.
    Refused(HomeserverError),
}

/// The owner of a token.
#[derive(Deserialize)]
pub(crate) struct WhoamiResponse {
    pub user_id: OwnedUserId,
    pub device_id: Option<OwnedDeviceId>,
}

/// Response to a login.
#[derive(Deserialize)]
pub(crate) struct LoginResponse {
    pub user_id: OwnedUserId,
    pub device_id: OwnedDeviceId,
    pub access_token: String,
    pub refresh_token: Option<String>,
}

#[derive(Deserialize)]
struct RefreshResponse {
    access_token: String,
    refresh_token: Option<String>,
}

#[derive(Deserialize)]
struct VersionsResponse {
    versions: Vec<String>,
}

#[derive(Deserialize)]
struct ErrorResponse {
    #[serde(default)]
    errcode: String,
    retry_after_ms: Option<u64>,
}

#[derive(Deserialize)]
struct WellKnownResponse {
    #[serde(rename = "m.homeserver")]
    homeserver: WellKnownServer,
}

#[derive(Deserialize)]
struct WellKnownServer {
    base_url: String,
}

impl HomeserverClient {
    /// Finds the homeserver by its address, or by the server name in user ids.
    pub async fn find(homeserver: &str) -> Result<Self, PlatformError> {
        let bad = || {
            fatal(
                "the homeserver's address is not understood",
                "write it as `https://matrix.example.org`, or as the name that user ids end with",
            )
        };
        let builder = reqwest::Client::builder()
            .user_agent(concat!("talaria/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT)
            .read_timeout(SILENCE)
            .redirect(redirect::Policy::limited(3));
        let http =
            builder.build().map_err(|error| trouble(PlatformErrorKind::Fatal, error.to_string(), ""))?;
        let asked = homeserver.trim().trim_end_matches('/');
        if asked.contains("://") {
            return Ok(Self { http, base: Url::parse(asked).map_err(|_| bad())? });
        }
        let named = Self { http, base: Url::parse(&format!("https://{asked}")).map_err(|_| bad())? };
        let found =
            named.ask::<WellKnownResponse>(Method::GET, ".well-known/matrix/client", None, None).await;
        let base = match found {
            Ok(found) => Url::parse(&found.homeserver.base_url).map_err(|_| bad())?,
            // There is no discovery document, so the name is the address.
            Err(RequestFailure::Refused(HomeserverError { status: 404, .. })) => return Ok(named),
            Err(failure) => return Err(failure.into_error("finding the homeserver")),
        };
        // A forged response on the way must not lead us to an address without encryption.
        if base.scheme() != "https" {
            return Err(bad());
        }
        Ok(Self { http: named.http, base })
    }

    /// The homeserver's address, for the SDK.
    pub fn base(&self) -> &Url {
        &self.base
    }

    /// The HTTP client, for the SDK.
    pub fn http(&self) -> reqwest::Client {
        self.http.clone()
    }

    /// Logs in as a device with this id. A second login with the same id is the same device.
    pub async fn log_in(
        &self,
        user: &str,
        password: &str,
        device: &OwnedDeviceId,
        name: &str,
    ) -> Result<LoginResponse, RequestFailure> {
        let question = json!({
            "type": "m.login.password",
            "identifier": { "type": "m.id.user", "user": user },
            "password": password,
            "device_id": device,
            "initial_device_display_name": name,
            "refresh_token": true,
        });
        self.ask(Method::POST, "_matrix/client/v3/login", None, Some(&question)).await
    }

    /// Returns the owner of a token.
    pub async fn whoami(&self, token: &str) -> Result<WhoamiResponse, RequestFailure> {
        self.ask(Method::GET, "_matrix/client/v3/account/whoami", Some(token), None).await
    }

    /// The signing key that a device has published; `None` if it has published no keys.
    pub async fn device_key(
        &self,
        token: &str,
        user: &OwnedUserId,
        device: &OwnedDeviceId,
    ) -> Result<Option<String>, RequestFailure> {
        let question = json!({ "device_keys": { user.as_str(): [device] } });
        let answer: serde_json::Value =
            self.ask(Method::POST, "_matrix/client/v3/keys/query", Some(token), Some(&question)).await?;
        let users = answer.get("device_keys").and_then(|users| users.get(user.as_str()));
        let Some(device_keys) = users.and_then(|devices| devices.get(device.as_str())) else {
            return Ok(None);
        };
        let key = device_keys.get("keys").and_then(|keys| keys.get(format!("ed25519:{device}")));
        // Published keys without this one are keys all the same.
        Ok(Some(key.and_then(serde_json::Value::as_str).unwrap_or_default().to_owned()))
    }

    /// Number of our one-time keys that the homeserver has.
    pub async fn one_time_keys(&self, token: &str) -> Result<u64, RequestFailure> {
        // An upload without keys returns the count.
        let question = json!({});
        let answer: serde_json::Value =
            self.ask(Method::POST, "_matrix/client/v3/keys/upload", Some(token), Some(&question)).await?;
        let count = answer.get("one_time_key_counts").and_then(|counts| counts.get("signed_curve25519"));
        Ok(count.and_then(serde_json::Value::as_u64).unwrap_or(0))
    }

    /// Matrix versions that the homeserver supports, and its clock.
    pub async fn versions(&self) -> Result<(Vec<String>, Option<SystemTime>), RequestFailure> {
        let (versions, date): (VersionsResponse, _) =
            self.ask_dated(Method::GET, "_matrix/client/versions", None, None).await?;
        // The versions are shown to people: only text that looks like a version passes.
        let plain = |version: &String| version.len() < 20 && version.bytes().all(|b| b.is_ascii_graphic());
        Ok((versions.versions.into_iter().filter(plain).collect(), date))
    }

    /// Fetches the next access token, and the next refresh token if there is one.
    pub async fn refresh(&self, token: &str) -> Result<(String, Option<String>), RequestFailure> {
        let question = json!({ "refresh_token": token });
        let refreshed: RefreshResponse =
            self.ask(Method::POST, "_matrix/client/v3/refresh", None, Some(&question)).await?;
        Ok((refreshed.access_token, refreshed.refresh_token))
    }

    /// Ends the device on the homeserver.
    pub async fn log_out(&self, token: &str) -> Result<(), RequestFailure> {
        let question = json!({});
        self.ask::<serde_json::Value>(Method::POST, "_matrix/client/v3/logout", Some(token), Some(&question))
            .await
            .map(|_| ())
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        token: Option<&str>,
        question: Option<&serde_json::Value>,
    ) -> Result<T, RequestFailure> {
        Ok(self.ask_dated(method, path, token, question).await?.0)
    }

    /// Makes a request, and also returns the `Date` of the response.
    async fn ask_dated<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        token: Option<&str>,
        question: Option<&serde_json::Value>,
    ) -> Result<(T, Option<SystemTime>), RequestFailure> {
        // A homeserver may be below a path.
        let url = format!("{}/{path}", self.base.as_str().trim_end_matches('/'));
        let mut request = self.http.request(method, url).timeout(REQUEST);
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        if let Some(question) = question {
            let body =
                serde_json::to_vec(question).map_err(|error| RequestFailure::Away(error.to_string()))?;
            request = request.header("content-type", "application/json").body(body);
        }
        let away = |error: reqwest::Error| RequestFailure::Away(words(&error.without_url()));
        let mut response = request.send().await.map_err(away)?;
        let status = response.status();
        let date = response.headers().get(header::DATE);
        let date = date.and_then(|date| http_date_to_system_time(date).ok());
        let mut answer = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(away)? {
            answer.extend_from_slice(&piece);
            if answer.len() > LONGEST {
                return Err(RequestFailure::Away("the answer is far too long".to_owned()));
            }
        }
        if status.is_success() {
            // The parser's message may quote a token.
            return serde_json::from_slice(&answer).map(|answer| (answer, date)).map_err(|_| {
                RequestFailure::Away("the answer is not one of a Matrix homeserver".to_owned())
            });
        }
        let said: Option<ErrorResponse> = serde_json::from_slice(&answer).ok();
        let after = said.as_ref().and_then(|said| said.retry_after_ms).map(Duration::from_millis);
        let code = said.map(|said| said.errcode).unwrap_or_default();
        // The code is shown to people: only characters of a code pass.
        let code =
            code.chars().filter(|c| c.is_ascii_alphanumeric() || "._-".contains(*c)).take(60).collect();
        Err(RequestFailure::Refused(HomeserverError { status: status.as_u16(), code, after }))
    }
}

impl RequestFailure {
    /// Converts a failure that says nothing about the request itself: the homeserver is away, busy or broken. `doing`
    /// names the request.
    pub fn into_error(self, doing: &str) -> PlatformError {
        match self {
            Self::Away(why) => trouble(
                PlatformErrorKind::Retry { after: None },
                format!("{doing}: the homeserver does not answer ({why})"),
                "check its address and that it runs; the gateway tries again by itself",
            ),
            Self::Refused(HomeserverError { status: 429, after, .. }) => {
                let after = after.unwrap_or(Duration::from_secs(5)).min(LONGEST_PAUSE);
                trouble(
                    PlatformErrorKind::Retry { after: Some(after) },
                    format!("{doing}: the homeserver asks to wait {} seconds", after.as_secs_f32().ceil()),
                    "wait that long; the gateway tries again by itself",
                )
            }
            Self::Refused(HomeserverError { status, code, .. }) if status >= 500 || code.is_empty() => {
                trouble(
                    PlatformErrorKind::Retry { after: None },
                    format!("{doing}: no homeserver answers there (status {status} {code})"),
                    "check the homeserver's address, and the proxy before it; the gateway tries again by itself",
                )
            }
            Self::Refused(HomeserverError { status, code, .. }) => fatal(
                format!("{doing}: the homeserver refuses (status {status} {code})"),
                "look at the homeserver's log",
            ),
        }
    }

    /// Whether the homeserver no longer accepts the token.
    pub fn is_unknown_token(&self) -> bool {
        matches!(self, Self::Refused(HomeserverError { status: 401 | 403, code, .. })
            if matches!(code.as_str(), "M_UNKNOWN_TOKEN" | "M_MISSING_TOKEN" | "M_FORBIDDEN"))
    }
}

/// The text of an error with its causes: reqwest's own text only says that something went wrong.
fn words(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        words = format!("{words}: {error}");
        cause = error.source();
    }
    words
}
