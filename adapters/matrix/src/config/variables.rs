//! Environment variables. They configure the entry called `matrix`, so that a container needs no file at all.

use talaria_platform::config::{EnvVar, VarCategory};

/// All of them, in the order in which people look for them.
pub(crate) const ALL: &[EnvVar] = &[
    HOMESERVER,
    USER_ID,
    PASSWORD,
    PASSWORD_FILE,
    ACCESS_TOKEN,
    ACCESS_TOKEN_FILE,
    RECOVERY_KEY,
    RECOVERY_KEY_FILE,
    STORE_KEY,
    STORE_KEY_FILE,
    ALLOWED_USERS,
    TRUST,
    E2EE,
];

pub(crate) const HOMESERVER: EnvVar = EnvVar {
    name: "MATRIX_HOMESERVER",
    category: VarCategory::Messaging,
    meaning: "address of the homeserver, such as https://matrix.example.org",
    default: "platforms.matrix.homeserver",
    secret: false,
};

pub(crate) const USER_ID: EnvVar = EnvVar {
    name: "MATRIX_USER_ID",
    category: VarCategory::Messaging,
    meaning: "full id of the account that answers, such as @bot:example.org",
    default: "platforms.matrix.user_id",
    secret: false,
};

pub(crate) const PASSWORD: EnvVar = EnvVar {
    name: "MATRIX_PASSWORD",
    category: VarCategory::Messaging,
    meaning: "its password, for the first login",
    default: "platforms.matrix.password",
    secret: true,
};

pub(crate) const PASSWORD_FILE: EnvVar = EnvVar {
    name: "MATRIX_PASSWORD_FILE",
    category: VarCategory::Messaging,
    meaning: "a file that holds MATRIX_PASSWORD, such as a Docker secret",
    default: "platforms.matrix.password_file",
    secret: false,
};

pub(crate) const ACCESS_TOKEN: EnvVar = EnvVar {
    name: "MATRIX_ACCESS_TOKEN",
    category: VarCategory::Messaging,
    meaning: "an access token, instead of the password",
    default: "platforms.matrix.access_token",
    secret: true,
};

pub(crate) const ACCESS_TOKEN_FILE: EnvVar = EnvVar {
    name: "MATRIX_ACCESS_TOKEN_FILE",
    category: VarCategory::Messaging,
    meaning: "a file that holds MATRIX_ACCESS_TOKEN, such as a Docker secret",
    default: "platforms.matrix.access_token_file",
    secret: false,
};

pub(crate) const RECOVERY_KEY: EnvVar = EnvVar {
    name: "MATRIX_RECOVERY_KEY",
    category: VarCategory::Messaging,
    meaning: "recovery key of the account, which makes our device a trusted one",
    default: "platforms.matrix.recovery_key",
    secret: true,
};

pub(crate) const RECOVERY_KEY_FILE: EnvVar = EnvVar {
    name: "MATRIX_RECOVERY_KEY_FILE",
    category: VarCategory::Messaging,
    meaning: "a file that holds MATRIX_RECOVERY_KEY, such as a Docker secret",
    default: "platforms.matrix.recovery_key_file",
    secret: false,
};

pub(crate) const STORE_KEY: EnvVar = EnvVar {
    name: "MATRIX_STORE_KEY",
    category: VarCategory::Messaging,
    meaning: "key that the store of our device is encrypted with: 32 bytes as hex or base64",
    default: "platforms.matrix.store_key, else a file there",
    secret: true,
};

pub(crate) const STORE_KEY_FILE: EnvVar = EnvVar {
    name: "MATRIX_STORE_KEY_FILE",
    category: VarCategory::Messaging,
    meaning: "a file that holds MATRIX_STORE_KEY, such as a Docker secret",
    default: "platforms.matrix.store_key_file",
    secret: false,
};

pub(crate) const ALLOWED_USERS: EnvVar = EnvVar {
    name: "MATRIX_ALLOWED_USERS",
    category: VarCategory::Messaging,
    meaning: "who may talk to the agent: full ids with commas between them",
    default: "platforms.matrix.access.people",
    secret: false,
};

pub(crate) const TRUST: EnvVar = EnvVar {
    name: "MATRIX_TRUST",
    category: VarCategory::Messaging,
    meaning: "which devices are heard and get keys: any, cross_signed or verified",
    default: "platforms.matrix.trust, else cross_signed",
    secret: false,
};

pub(crate) const E2EE: EnvVar = EnvVar {
    name: "MATRIX_E2EE",
    category: VarCategory::Messaging,
    meaning: "whether only encrypted rooms are served: required or optional",
    default: "platforms.matrix.e2ee, else required",
    secret: false,
};
