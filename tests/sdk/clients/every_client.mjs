// The scenes that every client for Node.js plays.
//
//   NAME_client.mjs (chat | responses | compatible) SCENE
//
// A client is an object with two ways to ask, in the words of its own package:
//
//   ask(prompt, { system, picture, tools })   the whole answer
//   stream(prompt)                            the pieces of the answer, as an asynchronous generator
//
// A failure is thrown, under the package's own name for it.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { inspect } from "node:util";

const require = createRequire(`${process.env.TALARIA_JS}/index.js`);

/// Loads a package from the folder that the tests installed.
export const load = async (name) => import(pathToFileURL(require.resolve(name)));

export const MODEL = "talaria";
export const PICTURE =
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// The server's texts for a model that refuses, and for one that breaks off.
const REFUSED = /it did not understand the request/;
const CUT_SHORT = /The answer was cut short/;

/// The server's report of a failure, wherever the package keeps it.
class Problem {
    constructor(error) {
        this.error = error;
        for (let each = error; each; each = each.cause ?? each.lastError) {
            this.status ??= each.status ?? each.statusCode;
            const body = typeof each.responseBody === "string" ? JSON.parse(each.responseBody).error : each.error;
            this.body ??= typeof body === "object" ? body : undefined;
            this.after ??= each.headers?.get?.("retry-after") ?? each.responseHeaders?.["retry-after"];
        }
    }
}

async function problem(ask) {
    let answer;
    try {
        answer = await ask();
    } catch (error) {
        return new Problem(error);
    }
    assert.fail(`a failure passed for an answer: ${JSON.stringify(answer)}`);
}

async function all(stream) {
    const pieces = [];
    for await (const piece of stream) pieces.push(piece);
    return pieces.join("");
}

const scenes = {
    async chat(client) {
        assert.equal(await client.ask("hi", { system: "Be brief" }), "Hello");
    },

    async silence(client) {
        assert.equal(await all(client.stream("hi")), "Hello");
    },

    async away_at_first(client) {
        assert.equal(await all(client.stream("hi")), "Hello");
    },

    async picture(client) {
        assert.equal(await client.ask("what is this?", { picture: PICTURE }), "ok");
    },

    async error_before(client) {
        let found = await problem(() => client.ask("hi", {}));
        assert.equal(found.status, 502, found);
        assert.match(inspect(found.error), REFUSED);
        found = await problem(() => all(client.stream("hi")));
        assert.match(inspect(found.error), REFUSED);
    },

    async error_midway(client) {
        let found = await problem(() => client.ask("hi", {}));
        assert.equal(found.status, 502, found);
        assert.equal(found.body.partial, "Hel", found);
        const pieces = [];
        found = await problem(async () => {
            for await (const piece of client.stream("hi")) pieces.push(piece);
            return pieces;
        });
        assert.equal(pieces.join(""), "Hel");
        assert.match(inspect(found.error), CUT_SHORT);
    },

    async unsupported(client) {
        const found = await problem(() => client.ask("hi", { tools: true }));
        assert.deepEqual([found.status, found.body.code, found.body.param], [400, "unsupported_parameter", "tools"]);
    },

    async unavailable(client) {
        for (const [status, after] of [[503, "7"], [429, "9"]]) {
            const found = await problem(() => client.ask("hi", {}));
            assert.deepEqual([found.status, found.after], [status, after]);
        }
    },

    async unreachable(client) {
        assert.equal((await problem(() => client.ask("hi", {}))).status, 503);
    },

    async cancel(client) {
        const stream = client.stream("hi");
        assert.equal((await stream.next()).value, "Hel");
        await stream.return();
        // The process stays, so that its end does not end the turn.
        await all(process.stdin);
    },
};

/// Plays the named scene with the client of the named API, both from the command line.
export async function play(clientOf) {
    const [api, scene] = process.argv.slice(2);
    await scenes[scene](await clientOf(api));
}
