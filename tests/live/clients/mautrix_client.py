#!/usr/bin/env python3
"""A person who uses mautrix: libolm, the original implementation in C."""

import asyncio
import base64
import sys

from mautrix.client import Client as MautrixClient
from mautrix.client.encryption_manager import DecryptionDispatcher
from mautrix.client.state_store import MemoryStateStore
from mautrix.crypto import OlmMachine
from mautrix.crypto.attachments import decrypt_attachment, encrypt_attachment
from mautrix.crypto.store import MemoryCryptoStore
from mautrix.crypto.store import StateStore as CryptoStateStore
from mautrix.errors import DecryptionError
from mautrix.types import EventType, Membership, TrustState

import lines


class StateStore(MemoryStateStore, CryptoStateStore):
    async def find_shared_rooms(self, user_id):
        return [
            room
            for room, members in self.members.items()
            if self.encryption.get(room) and user_id in members and members[user_id].membership == Membership.JOIN
        ]


class Client:
    def __init__(self):
        self.client = None
        # Events that came and were not read yet, in the order of the rooms.
        self.seen = asyncio.Queue()
        # Messages with keys while they are held back.
        self.held = None

    async def login(self, homeserver, user, password):
        crypto_store, state_store = MemoryCryptoStore("test", "test"), StateStore()
        client = self.client = MautrixClient(
            mxid=user, base_url=homeserver, sync_store=crypto_store, state_store=state_store
        )
        answer = await client.login(identifier=user, password=password, device_name="mautrix")
        await crypto_store.put_device_id(answer.device_id)
        client.crypto = OlmMachine(client, crypto_store, state_store)
        client.crypto.share_keys_min_trust = TrustState.UNVERIFIED
        await client.crypto.load()
        # Our keys are on the server before anybody can write to us.
        await client.crypto.share_keys(0)
        # We decrypt ourselves: the dispatcher would report the events twice and in another order.
        client.remove_dispatcher(DecryptionDispatcher)
        client.add_event_handler(EventType.ALL, self.saw, wait_sync=True)
        self.reading = asyncio.create_task(self.reads())
        self.sends = client.send_to_device
        client.send_to_device = self.sends_to_device
        client.start(None)
        return {"device": answer.device_id, "token": answer.access_token}

    async def saw(self, event):
        if getattr(event, "room_id", None) and getattr(event, "event_id", None):
            self.seen.put_nowait(event)

    async def reads(self):
        """Reads events one after the other: handlers would overtake each other."""
        while True:
            await self.read(await self.seen.get())

    async def read(self, event):
        if event.type != EventType.ROOM_ENCRYPTED:
            lines.event(event.room_id, event.serialize(), encrypted=False)
            return
        try:
            # The key may be in the same sync and not yet processed.
            session = event.content.session_id
            if not await self.client.crypto.crypto_store.has_group_session(event.room_id, session):
                await self.client.crypto.wait_for_session(event.room_id, session, timeout=5)
            plain = await self.client.crypto.decrypt_megolm_event(event)
            source = {**plain.serialize(), "type": str(plain.type)}
            lines.event(event.room_id, source, encrypted=True)
        except DecryptionError as error:
            print(error, file=sys.stderr)
            lines.event(event.room_id, event.serialize(), encrypted=True, readable=False)

    async def send(self, room, type, content):
        kind = EventType.find(type, EventType.Class.MESSAGE)
        return {"id": await self.client.send_message_event(room, kind, content)}

    async def sends_to_device(self, kind, messages):
        if self.held is not None and kind == EventType.TO_DEVICE_ENCRYPTED:
            self.held.append(messages)
        else:
            await self.sends(kind, messages)

    async def hold_keys(self):
        """From now on nobody gets the keys of our messages."""
        self.held = []
        return {}

    async def release_keys(self):
        """Everybody gets the keys that were held."""
        held, self.held = self.held, None
        for messages in held:
            await self.sends(EventType.TO_DEVICE_ENCRYPTED, messages)
        return {"messages": len(held)}

    async def encrypt_file(self, data):
        data, file = encrypt_attachment(base64.b64decode(data))
        return {"data": base64.b64encode(data).decode(), "file": file.serialize()}

    async def decrypt_file(self, data, file):
        plain = decrypt_attachment(
            base64.b64decode(data), file["key"]["k"], file["hashes"]["sha256"], file["iv"]
        )
        return {"data": base64.b64encode(plain).decode()}


lines.run(Client())
