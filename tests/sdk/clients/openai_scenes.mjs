// Scenes of OpenAI's npm package. It finds the server and the key in its own variables.
//
//   openai_scenes.mjs SCENE

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const require = createRequire(`${process.env.TALARIA_JS}/index.js`);
const { default: OpenAI } = await import(pathToFileURL(require.resolve("openai")));

const PICTURE =
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const model = "talaria";

const client = new OpenAI({ maxRetries: 0 });

const user = (content) => [{ role: "user", content }];

async function all(stream) {
    const events = [];
    for await (const event of stream) events.push(event);
    return events;
}

const text = (chunks) => chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join("");

async function raises(kind, asked) {
    try {
        await asked;
    } catch (error) {
        assert(error instanceof kind, error);
        return error;
    }
    assert.fail(`${kind.name} should have been raised`);
}

const scenes = {
    async models() {
        assert.deepEqual((await all(await client.models.list())).map((each) => each.id), [model]);
    },

    async an_agent_with_tools() {
        const answer = await client.chat.completions.create({ model, messages: user("what is to do?") });
        assert(answer.choices[0].message.content.endsWith("Buy milk."), answer.choices[0].message.content);
        assert.equal(answer.choices[0].finish_reason, "stop");
        assert.equal(answer.usage.total_tokens, 20);
        const stream = await client.chat.completions.create({ model, messages: user("what is to do?"), stream: true });
        const said = text(await all(stream));
        assert(said.startsWith("I look.") && said.endsWith("Buy milk."), said);
    },

    async a_chat() {
        const messages = [{ role: "system", content: "Be brief" }, ...user("hi")];
        const { data, response } = await client.chat.completions.create({ model, messages }).withResponse();
        assert.equal(data.choices[0].message.content, "Hello");
        assert.equal(data.choices[0].finish_reason, "stop");
        assert.equal(data.usage.total_tokens, 5);
        const headers = { "X-Hermes-Session-Id": response.headers.get("x-hermes-session-id") };
        const again = await client.chat.completions.create({ model, messages: user("and now?") }, { headers });
        assert.equal(again.choices[0].message.content, "Again");
    },

    async a_chat_as_it_grows() {
        const options = { model, messages: user("hi"), stream_options: { include_usage: true } };
        const chunks = await all(await client.chat.completions.create({ ...options, stream: true }));
        assert.equal(chunks[0].choices[0].delta.role, "assistant");
        assert.equal(text(chunks), "Hello");
        assert.deepEqual(chunks.filter((chunk) => chunk.usage).map((chunk) => chunk.usage.total_tokens), [5]);
        const stream = client.chat.completions.stream(options);
        assert.equal((await stream.finalChatCompletion()).choices[0].message.content, "Hello");
    },

    async responses() {
        const first = await client.responses.create({ model, input: "1", instructions: "Be brief", metadata: { of: "a test" } });
        assert.deepEqual([first.output_text, first.status, first.usage.total_tokens], ["one", "completed", 5]);
        assert.deepEqual((await client.responses.retrieve(first.id)).output, first.output);
        const previous_response_id = first.id;
        const second = await client.responses.create({ model, input: user("2"), previous_response_id });
        assert.deepEqual([second.output_text, second.previous_response_id], ["two", first.id]);
        const third = await client.responses.create({ model, input: "3", previous_response_id });
        assert.equal(third.output_text, "three");
        await client.responses.delete(first.id);
        await raises(OpenAI.NotFoundError, client.responses.retrieve(first.id));
        const gone = await raises(OpenAI.NotFoundError, client.responses.create({ model, input: "4", previous_response_id }));
        assert.deepEqual([gone.code, gone.param], ["previous_response_not_found", "previous_response_id"]);
        const hidden = await client.responses.create({ model, input: "5", store: false });
        await raises(OpenAI.NotFoundError, client.responses.retrieve(hidden.id));
        const later = await client.responses.create({ model, input: "6", background: true });
        const stream = client.responses.stream({ response_id: later.id, starting_after: 0 });
        assert.equal((await stream.finalResponse()).output_text, "ok");
    },

    async responses_as_they_grow() {
        const events = await all(await client.responses.create({ model, input: "hi", stream: true }));
        assert.deepEqual([events[0].type, events.at(-1).type], ["response.created", "response.completed"]);
        const numbers = events.map((event) => event.sequence_number);
        assert(numbers.every((number, at) => at === 0 || number > numbers[at - 1]), `${numbers}`);
        const deltas = events.filter((event) => event.type === "response.output_text.delta");
        assert.equal(deltas.map((event) => event.delta).join(""), "Hello");
        const { id } = events[0].response;
        const replayed = await all(await client.responses.retrieve(id, { stream: true }));
        assert.deepEqual(replayed.at(-1), events.at(-1));
        const rest = await all(await client.responses.retrieve(id, { stream: true, starting_after: numbers.at(-2) }));
        assert.deepEqual(rest, events.slice(-1));
        const stream = client.responses.stream({ model, input: "hi" });
        assert.equal((await stream.finalResponse()).output_text, "Hello");
    },

    async pictures() {
        let parts = [{ type: "text", text: "what is this?" }, { type: "image_url", image_url: { url: PICTURE } }];
        const answer = await client.chat.completions.create({ model, messages: user(parts) });
        assert.equal(answer.choices[0].message.content, "ok");
        parts = [
            { type: "input_text", text: "what is this?" },
            { type: "input_image", image_url: PICTURE, detail: "auto" },
        ];
        assert.equal((await client.responses.create({ model, input: user(parts) })).output_text, "ok");
    },

    async errors() {
        const stranger = new OpenAI({ apiKey: "not-the-key-of-this-server", maxRetries: 0 });
        let error = await raises(OpenAI.AuthenticationError, stranger.models.list());
        assert.deepEqual([error.status, error.code], [401, "invalid_api_key"]);
        error = await raises(OpenAI.NotFoundError, client.responses.retrieve("resp_0"));
        assert.equal(error.code, "response_not_found");
        error = await raises(OpenAI.NotFoundError, client.get("/nothing"));
        assert.equal(error.code, "not_found");
        const part = user([{ type: "input_audio", input_audio: { data: "", format: "wav" } }]);
        error = await raises(OpenAI.BadRequestError, client.chat.completions.create({ model, messages: part }));
        assert.equal(error.param, "messages[0].content");
        const input = [{ type: "computer_call_output", call_id: "1", output: { type: "computer_screenshot" } }];
        error = await raises(OpenAI.BadRequestError, client.responses.create({ model, input }));
        assert.equal(error.param, "input[0].type");
        const once = { headers: { "Idempotency-Key": "once" } };
        await client.responses.create({ model, input: "1" }, once);
        error = await raises(OpenAI.UnprocessableEntityError, client.responses.create({ model, input: "2" }, once));
        assert.equal(error.code, "idempotency_key_reused");
    },

    async a_server_that_is_busy() {
        const asked = { model, messages: user("hi") };
        const stream = (await client.chat.completions.create({ ...asked, stream: true }))[Symbol.asyncIterator]();
        while ((await stream.next()).value.choices[0].delta.content !== "Hel");
        const error = await raises(OpenAI.RateLimitError, client.chat.completions.create(asked));
        assert.equal(error.code, "rate_limit_exceeded");
        assert(Number(error.headers.get("retry-after")) > 0);
        console.log("turned away");
        assert.equal(text(await all({ [Symbol.asyncIterator]: () => stream })), "lo");
        const patient = new OpenAI({ maxRetries: 5 });
        assert.equal((await patient.chat.completions.create(asked)).choices[0].message.content, "ok");
    },

    async steps() {
        const asked = { model, messages: user("hi") };
        assert.equal(text(await all(await client.chat.completions.create({ ...asked, stream: true }))), "Hello");
        const chat = await client.chat.completions.stream(asked).finalChatCompletion();
        assert.equal(chat.choices[0].message.content, "Hello");
        const events = await all(await client.responses.create({ model, input: "hi", stream: true }));
        const steps = events.map((event) => event.type).filter((type) => type.startsWith("response.mcp_call."));
        assert.deepEqual(steps, ["response.mcp_call.in_progress", "response.mcp_call.completed"]);
        assert.deepEqual(events.at(-1).response.output.map((item) => item.type), ["reasoning", "mcp_call", "message"]);
        const response = await client.responses.stream({ model, input: "hi" }).finalResponse();
        assert.equal(response.output_text, "Hello");
    },

    async a_model_that_fails() {
        await assert.rejects(client.responses.create({ model, input: "hi" }), { status: 502 });
        const events = await all(await client.responses.create({ model, input: "hi", stream: true }));
        assert.deepEqual([events.at(-1).type, events.at(-1).response.error.code], ["response.failed", "server_error"]);
    },

    async many_at_once() {
        const one = async () => text(await all(await client.chat.completions.create({ model, messages: user("hi"), stream: true })));
        assert.deepEqual(await Promise.all(Array.from({ length: 50 }, one)), Array(50).fill("ok"));
    },
};

await scenes[process.argv[2]]();
