// A person who uses matrix-js-sdk: cross-signing and verification by emoji. See lines.py for the protocol.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

// The SDK logs a lot, and our standard output belongs to the protocol.
for (const level of ["log", "info", "debug", "trace", "warn"]) console[level] = () => {};

const require = createRequire(`${process.env.TALARIA_JS}/index.js`);
const sdk = await import(pathToFileURL(require.resolve("matrix-js-sdk")));

const tell = (what) => process.stdout.write(`${JSON.stringify(what)}\n`);

let client;
let account;
let verifier;
let compared;
let own;
/** Reports the events of a room in order, although some take a while to decrypt. */
let telling = Promise.resolve();

async function told(event) {
    if (event.isBeingDecrypted()) await event.getDecryptionPromise();
    if (event.isDecryptionFailure()) {
        // Waits for a key that may come in the same moment.
        await Promise.race([
            new Promise((resolve) => event.once("Event.decrypted", resolve)),
            new Promise((resolve) => setTimeout(resolve, 5000)),
        ]);
    }
    const clear = event.clearEvent ?? event.event;
    tell({
        event: {
            room: event.getRoomId(),
            id: event.getId(),
            sender: event.getSender(),
            type: clear.type,
            state_key: event.event.state_key,
            redacts: event.event.redacts ?? event.event.content?.redacts,
            content: clear.content ?? {},
            encrypted: event.isEncrypted(),
            readable: !event.isDecryptionFailure(),
        },
    });
}

const commands = {
    async login({ homeserver, user, password }) {
        account = { user, password };
        const first = sdk.createClient({ baseUrl: homeserver });
        const answer = await first.loginRequest({
            type: "m.login.password",
            identifier: { type: "m.id.user", user },
            password,
            initial_device_display_name: "js",
        });
        client = sdk.createClient({
            baseUrl: homeserver,
            userId: user,
            deviceId: answer.device_id,
            accessToken: answer.access_token,
        });
        await client.initRustCrypto({ useIndexedDB: false });
        client.on("event", (event) => {
            if (event.getRoomId() && event.getId()) telling = telling.then(() => told(event));
        });
        await client.startClient({ initialSyncLimit: 50 });
        await new Promise((resolve) => client.once("sync", resolve));
        return { device: answer.device_id, token: answer.access_token };
    },

    async cross_sign() {
        await client.getCrypto().bootstrapCrossSigning({
            setupNewCrossSigning: true,
            authUploadDeviceSigningKeys: (request) =>
                request({
                    type: "m.login.password",
                    identifier: { type: "m.id.user", user: account.user },
                    password: account.password,
                }),
        });
        return {};
    },

    /** Whether the push rules notify of a message, now that it is decrypted. */
    async rings({ room, event }) {
        const found = client.getRoom(room).findEventById(event);
        return { rings: Boolean(client.getPushActionsForEvent(found, true)?.notify) };
    },

    async send({ room, type, content }) {
        const answer = await client.sendEvent(room, type, content);
        return { id: answer.event_id };
    },

    /**
     * Asks a user to compare emoji, in a room or else on their only device, and waits until both have them. With
     * `sealed`, our part in a room is encrypted.
     */
    async verify({ user, room, sealed }) {
        if (sealed) seal();
        const request = room
            ? await client.getCrypto().requestVerificationDM(user, room)
            : await client.getCrypto().requestDeviceVerification(user, await onlyDevice(user));
        await until(request, "change", () => request.phase >= 3);
        if (request.phase === 5) throw new Error(`cancelled: ${request.cancellationCode}`);
        verifier = request.verifier ?? (await request.startVerification("m.sas.v1"));
        const shown = new Promise((resolve) => verifier.once("show_sas", resolve));
        verifier.finished = verifier.verify();
        // `confirm` reports a failure; until then an unhandled rejection must not end the process.
        verifier.finished.catch(() => {});
        compared = verifier.getShowSasCallbacks() ?? (await Promise.race([shown, verifier.finished]));
        return { emoji: compared.sas.emoji };
    },

    async confirm() {
        await compared.confirm();
        await verifier.finished;
        return {};
    },

    /** Reports that the emoji are not the same. */
    async mismatch() {
        compared.mismatch();
        await verifier.finished.catch(() => {});
        return {};
    },

    /** Waits until the other side has cancelled; returns the code. */
    async is_broken_off() {
        await verifier.finished.catch(() => {});
        return { cancelled: verifier.hasBeenCancelled };
    },

    /** Asks the other devices of our own account to compare emoji. */
    async verify_own() {
        own = await client.getCrypto().requestOwnUserVerification();
        return {};
    },

    /** Phase of that request: 2 is requested, 3 is accepted. */
    async own_phase() {
        return { phase: own.phase };
    },

    /** Whether we have verified a user by emoji. */
    async verified({ user }) {
        const status = await client.getCrypto().getUserVerificationStatus(user);
        return { verified: status.isCrossSigningVerified() };
    },
};

/** Encrypts our part of verifications in rooms, as other clients do; this SDK sends it in plaintext. */
function seal() {
    const plain = client.http.authedRequest.bind(client.http);
    client.http.authedRequest = async (method, path, query, body, options) => {
        const [, room, type, transaction] = /\/rooms\/([^/]+)\/send\/([^/]+)\/([^/]+)$/.exec(path) ?? [];
        // Only verification events have a body of text.
        if (!room || typeof body !== "string") return plain(method, path, query, body, options);
        const [where, what, key] = [room, type, transaction].map(decodeURIComponent);
        const answer = await client.sendEvent(where, what, JSON.parse(body), key);
        return options?.json === false ? JSON.stringify(answer) : answer;
    };
}

async function onlyDevice(user) {
    const devices = (await client.getCrypto().getUserDeviceInfo([user], true)).get(user);
    return [...devices.keys()][0];
}

function until(emitter, event, happened) {
    if (happened()) return Promise.resolve();
    return new Promise((resolve) => {
        const look = () => {
            if (!happened()) return;
            emitter.off(event, look);
            resolve();
        };
        emitter.on(event, look);
    });
}

for await (const line of createInterface({ input: process.stdin })) {
    const { id, do: name, ...rest } = JSON.parse(line);
    try {
        tell({ id, ok: await commands[name](rest) });
    } catch (error) {
        console.error(error);
        tell({ id, error: String(error) });
    }
}
process.exit(0);
