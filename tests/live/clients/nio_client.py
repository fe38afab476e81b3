#!/usr/bin/env python3
"""A person who uses matrix-nio: an Olm machine of its own in Python, no cross-signing."""

import asyncio
import base64
import sys
import tempfile

import nio
from nio.crypto.attachments import decrypt_attachment, encrypt_attachment

import lines


class Client:
    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.client = None
        self.syncing = None

    async def login(self, homeserver, user, password):
        config = nio.AsyncClientConfig(encryption_enabled=True, store_sync_tokens=False)
        self.client = nio.AsyncClient(homeserver, user, store_path=self.folder.name, config=config)
        answer = await self.client.login(password, device_name="nio")
        if not isinstance(answer, nio.LoginResponse):
            raise RuntimeError(str(answer))
        self.client.add_event_callback(self.saw, (nio.Event, nio.BadEvent, nio.UnknownBadEvent))
        # Our keys are on the server before anybody can write to us.
        await self.client.sync(timeout=0, full_state=True)
        if self.client.should_upload_keys:
            await self.client.keys_upload()
        self.syncing = asyncio.create_task(self.client.sync_forever(timeout=30000))
        return {"device": answer.device_id, "token": answer.access_token}

    async def saw(self, room, event):
        unreadable = isinstance(event, nio.MegolmEvent)
        encrypted = unreadable or getattr(event, "decrypted", False)
        lines.event(room.room_id, event.source, encrypted=encrypted, readable=not unreadable)

    async def send(self, room, type, content):
        await self.knows(room)
        answer = await self.client.room_send(room, type, content, ignore_unverified_devices=True)
        if not isinstance(answer, nio.RoomSendResponse):
            raise RuntimeError(str(answer))
        return {"id": answer.event_id}

    async def knows(self, room):
        """Waits until the room has come with a sync, and everybody's devices are known."""
        while room not in self.client.rooms:
            await self.client.synced.wait()
        while self.client.should_query_keys:
            try:
                await self.client.keys_query()
            except nio.LocalProtocolError:
                break

    async def encrypt_file(self, data):
        data, keys = encrypt_attachment(base64.b64decode(data))
        return {"data": base64.b64encode(data).decode(), "file": keys}

    async def decrypt_file(self, data, file):
        plain = decrypt_attachment(
            base64.b64decode(data), file["key"]["k"], file["hashes"]["sha256"], file["iv"]
        )
        return {"data": base64.b64encode(plain).decode()}


lines.run(Client())
