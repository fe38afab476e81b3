//! The clients that only `tests/run full` installs.

use crate::every_client::every_client;

every_client! {
    agents: Agents { chat: Chat }
    python1: Python1 { chat: Chat, responses: Responses }
    langchain: Langchain { chat: Chat, responses: Responses }
    pydantic: Pydantic { chat: Chat, responses: Responses }
    litellm: Litellm { chat: Chat, responses: Responses, compatible: Compatible }
    litellm_proxy: LitellmProxy { chat: Chat, responses: Responses }
    llm: Llm { chat: Chat }
}
