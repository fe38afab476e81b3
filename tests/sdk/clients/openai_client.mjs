// OpenAI's npm package. See every_client.mjs.

import { MODEL as model, load, play } from "./every_client.mjs";

const { default: OpenAI } = await load("openai");
const client = new OpenAI({ maxRetries: 0 });
const parameters = { type: "object", properties: {} };

const chat = {
    async ask(prompt, { system, picture, tools }) {
        const content = picture
            ? [{ type: "text", text: prompt }, { type: "image_url", image_url: { url: picture } }]
            : prompt;
        const messages = [...(system ? [{ role: "system", content: system }] : []), { role: "user", content }];
        const options = tools ? { tools: [{ type: "function", function: { name: "weather", parameters } }] } : {};
        return (await client.chat.completions.create({ model, messages, ...options })).choices[0].message.content;
    },

    async *stream(prompt) {
        const messages = [{ role: "user", content: prompt }];
        const stream = await client.chat.completions.create({ model, messages, stream: true });
        for await (const chunk of stream) {
            if (chunk.choices[0]?.delta.content) yield chunk.choices[0].delta.content;
        }
    },
};

const responses = {
    async ask(prompt, { system, picture, tools }) {
        const content = picture
            ? [{ type: "input_text", text: prompt }, { type: "input_image", image_url: picture, detail: "auto" }]
            : prompt;
        const input = [{ role: "user", content }];
        const options = tools ? { tools: [{ type: "function", name: "weather", parameters, strict: false }] } : {};
        return (await client.responses.create({ model, input, instructions: system, ...options })).output_text;
    },

    async *stream(prompt) {
        for await (const event of await client.responses.create({ model, input: prompt, stream: true })) {
            if (event.type === "response.output_text.delta") yield event.delta;
            // The package passes this on like any other event; an app has to check for it.
            if (event.type === "response.failed") throw new Error(event.response.error.message);
        }
    },
};

await play((api) => ({ chat, responses })[api]);
