//! The sections `gateway` and `agent` and their variables, which stand for the agents `proxy` and `local`.

use super::AgentSettings;
use super::model::ModelValues;
use super::proxy::ProxyValues;
use super::{TimeoutsSection, UpstreamTimeouts};
use crate::config::env;
use crate::config::file;
use crate::config::resolve::{ConfigResolver, SettingSource};
use crate::config::secret::SecretForm;
use crate::config::secret_sources::KeySetting;
use crate::ids::AgentName;

/// The key of `gateway` that lets a key be sent in the clear, for both shorthands.
const PERMIT: &str = "gateway.allow_cleartext";

impl ConfigResolver<'_> {
    /// The agents that the shorthands configure. `needs_local` if another setting names `local`; otherwise a faulty
    /// model beside a remote agent server is left out with a warning, because nothing depends on it.
    pub(super) fn shorthands(
        &mut self,
        gateway: file::GatewaySection,
        agent: file::AgentSection,
        needs_local: bool,
    ) -> Vec<(AgentName, AgentSettings)> {
        let timeouts = TimeoutsSection {
            connect: gateway.connect_timeout,
            first_byte: gateway.first_byte_timeout,
            idle: gateway.idle_timeout,
            keepalive_idle: gateway.keepalive_idle_timeout,
        }
        .resolve();
        let allow_cleartext = gateway.allow_cleartext;
        let has_proxy = self.proxy_url(&gateway).is_some();
        let proxy = self.shorthand_proxy(gateway, timeouts);
        let settings = self.shorthand_model(agent, allow_cleartext.unwrap_or(false), timeouts);
        let mut agents: Vec<_> = proxy.map(|proxy| (AgentName::proxy(), proxy)).into_iter().collect();
        if settings.base_url.is_some() || (settings.model.is_some() && settings.key.is_some()) {
            let errors_before = self.errors.len();
            let model = self.model(settings);
            if has_proxy && !needs_local {
                for error in self.errors.split_off(errors_before) {
                    self.warnings.push(format!("the model of the section `agent` is left out: {error}"));
                }
            }
            agents.extend(model.map(|model| (AgentName::local(), AgentSettings::Model(model))));
        } else if !has_proxy {
            // Many people have a key in their environment for other programs: alone it asks for nothing.
            if settings.key.is_some() {
                self.warnings.push(
                    "there is a key for a model server but no model; set `OPENAI_MODEL` or `agent.model` to use it"
                        .to_owned(),
                );
            }
            if settings.model.is_some() {
                self.warnings.push(
                    "a model is named but no server for it; set `OPENAI_BASE_URL` or `agent.base_url`, or for OpenAI \
                     `OPENAI_API_KEY`"
                        .to_owned(),
                );
            }
        }
        agents
    }

    fn proxy_url(&mut self, gateway: &file::GatewaySection) -> Option<crate::config::resolve::GivenValue> {
        self.text(
            SettingSource { var: Some(&env::PROXY_URL), path: &["gateway", "proxy_url"] },
            gateway.proxy_url.clone(),
        )
    }

    fn shorthand_proxy(
        &mut self,
        gateway: file::GatewaySection,
        timeouts: UpstreamTimeouts,
    ) -> Option<AgentSettings> {
        let url = self.proxy_url(&gateway);
        let key = self.key(
            KeySetting {
                vars: Some((&env::PROXY_KEY, &env::PROXY_KEY_FILE)),
                path: &["gateway", "proxy_key"],
                form: SecretForm::Key,
            },
            gateway.proxy_key,
            None,
        );
        let Some(url) = url else {
            if key.is_some() {
                self.warnings.push(
                    "there is a key for a remote agent server but no server; set `GATEWAY_PROXY_URL` or \
                     `gateway.proxy_url`"
                        .to_owned(),
                );
            }
            return None;
        };
        self.proxy(ProxyValues {
            url,
            key,
            model: gateway.model,
            upstream: gateway.upstream,
            identity: gateway.identity,
            allow_cleartext: gateway.allow_cleartext,
            timeouts,
            permit: PERMIT,
        })
    }

    fn shorthand_model(
        &mut self,
        agent: file::AgentSection,
        allow_cleartext: bool,
        timeouts: UpstreamTimeouts,
    ) -> ModelValues<'static> {
        let base_url = self
            .text(SettingSource { var: Some(&env::BASE_URL), path: &["agent", "base_url"] }, agent.base_url);
        let key = self.key(
            KeySetting {
                vars: Some((&env::API_KEY, &env::API_KEY_FILE)),
                path: &["agent", "api_key"],
                form: SecretForm::Key,
            },
            agent.api_key,
            None,
        );
        let model =
            self.text(SettingSource { var: Some(&env::MODEL), path: &["agent", "model"] }, agent.model);
        ModelValues {
            section: "agent",
            agent: "local",
            base_url,
            key,
            model,
            allow_cleartext,
            timeouts,
            runtime: agent.runtime,
            permit: PERMIT,
        }
    }
}
