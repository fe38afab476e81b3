// The AI SDK of Vercel, with its provider for OpenAI and the one for everything compatible. See every_client.mjs.

import { MODEL, load, play } from "./every_client.mjs";

const { generateText, streamText, tool, jsonSchema } = await load("ai");
const server = { baseURL: process.env.OPENAI_BASE_URL, apiKey: process.env.OPENAI_API_KEY };

async function model(api) {
    if (api === "compatible") {
        const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");
        return createOpenAICompatible({ ...server, name: "talaria" })(MODEL);
    }
    const { createOpenAI } = await load("@ai-sdk/openai");
    return createOpenAI(server)[api](MODEL);
}

function client(model) {
    const asked = { model, maxRetries: 0 };
    return {
        async ask(prompt, { system, picture, tools }) {
            const content = picture ? [{ type: "text", text: prompt }, { type: "image", image: picture }] : prompt;
            const inputSchema = jsonSchema({ type: "object", properties: {} });
            const options = tools ? { tools: { weather: tool({ inputSchema }) } } : {};
            const messages = [{ role: "user", content }];
            return (await generateText({ ...asked, system, messages, ...options })).text;
        },

        async *stream(prompt) {
            const leaving = new AbortController();
            const { fullStream } = streamText({ ...asked, prompt, abortSignal: leaving.signal, onError() {} });
            try {
                for await (const part of fullStream) {
                    if (part.type === "text-delta") yield part.text;
                    if (part.type === "error") throw part.error;
                    if (part.type === "finish" && part.finishReason === "error") throw new Error("it failed");
                }
            } finally {
                leaving.abort();
            }
        },
    };
}

await play(async (api) => client(await model(api)));
