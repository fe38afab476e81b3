//! Paths of the programs that `tests/sdk/parts` installs.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder of the programs that use the clients.
const CLIENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sdk/clients");

/// A foreign client.
#[derive(Clone, Copy, Debug)]
pub enum Client {
    /// OpenAI's package for Python.
    Python,
    /// OpenAI's package for Python before its version 2.
    Python1,
    /// OpenAI's package for Node.js.
    Node,
    /// openai-agents.
    Agents,
    /// langchain-openai.
    Langchain,
    /// pydantic-ai.
    Pydantic,
    /// LiteLLM as a package.
    Litellm,
    /// LiteLLM as a proxy, with OpenAI's package before it.
    LitellmProxy,
    /// llm.
    Llm,
    /// The AI SDK of Vercel.
    Vercel,
}

/// The API that a client uses.
#[derive(Clone, Copy, Debug)]
pub enum Api {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/responses`.
    Responses,
    /// `/v1/chat/completions`, through the providers of the AI SDK and LiteLLM for servers that are not OpenAI's.
    Compatible,
}

impl Client {
    /// Plays one of the scenes that only OpenAI's packages have.
    pub fn plays(self, scene: &str) -> Command {
        let mut command = self.starts("openai_scenes");
        command.arg(scene);
        command
    }

    /// Plays one of the scenes that every client has.
    pub fn plays_with(self, api: Api, scene: &str) -> Command {
        let mut command = self.starts(match self {
            Self::Python | Self::Python1 | Self::Node => "openai_client",
            Self::Agents => "agents_client",
            Self::Langchain => "langchain_client",
            Self::Pydantic => "pydantic_client",
            Self::Litellm => "litellm_client",
            Self::LitellmProxy => "litellm_proxy_client",
            Self::Llm => "llm_client",
            Self::Vercel => "vercel_client",
        });
        command.arg(match api {
            Api::Chat => "chat",
            Api::Responses => "responses",
            Api::Compatible => "compatible",
        });
        command.arg(scene);
        command
    }

    /// Starts a program with the packages that this client needs.
    fn starts(self, program: &str) -> Command {
        let python = match self {
            Self::Node | Self::Vercel => {
                let folder = cache().join("sdk-js");
                needs(&folder);
                let mut command = Command::new("node");
                command.arg(format!("{CLIENTS}/{program}.mjs")).env("TALARIA_JS", folder);
                return command;
            }
            Self::Python | Self::Agents => venv(),
            Self::Python1 => venv_of("sdk-openai1"),
            Self::Langchain | Self::Pydantic | Self::Llm => venv_of("sdk-frameworks"),
            Self::Litellm | Self::LitellmProxy => venv_of("sdk-litellm"),
        };
        let mut command = Command::new(python.join("bin/python"));
        command.arg(format!("{CLIENTS}/{program}.py"));
        // No package may report its use, or download more than we installed.
        let quiet = [
            ("PYTHONDONTWRITEBYTECODE", "1"),
            ("OPENAI_AGENTS_DISABLE_TRACING", "1"),
            ("LITELLM_LOCAL_MODEL_COST_MAP", "True"),
            ("DO_NOT_TRACK", "1"),
        ];
        command.envs(quiet);
        command
    }
}

/// Folder of the Python packages.
pub fn venv() -> PathBuf {
    venv_of("sdk")
}

/// Folder of a Python environment.
pub fn venv_of(name: &str) -> PathBuf {
    let folder = cache().join(name);
    needs(&folder);
    folder
}

/// The program of an MCP server from npm.
pub fn mcp_script(server: &str) -> PathBuf {
    let folder = cache().join("mcp-js");
    needs(&folder);
    folder.join("node_modules/@modelcontextprotocol").join(server).join("dist/index.js")
}

/// The folder of the npm package that MCP clients are made with. The servers need it too.
pub fn mcp_sdk() -> PathBuf {
    let folder = cache().join("mcp-js");
    needs(&folder);
    folder.join("node_modules/@modelcontextprotocol/sdk")
}

fn cache() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    cache.expect("a home folder").join("talaria-tests")
}

fn needs(path: &Path) {
    assert!(path.join(".parts").exists(), "{} is not there; run tests/sdk/parts once", path.display());
}
