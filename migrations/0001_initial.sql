-- Control plane: vaults, credentials, environments, sessions, admin tokens, settings, sealed items.
-- Times are milliseconds since the epoch. `seq` gives lists their stable order and is never used twice.

CREATE TABLE vaults (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  display_name TEXT NOT NULL,
  metadata TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  archived_at INTEGER
) STRICT;

CREATE INDEX vaults_active ON vaults (seq) WHERE archived_at IS NULL;

-- placeholder, inject_header and inject_body are null in rows that an older system left: nothing ever fills them.
CREATE TABLE credentials (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  vault_id TEXT NOT NULL REFERENCES vaults (id) ON DELETE CASCADE,
  display_name TEXT,
  secret_name TEXT NOT NULL,
  placeholder TEXT UNIQUE,
  inject_header INTEGER CHECK (inject_header IN (0, 1)),
  inject_body INTEGER CHECK (inject_body IN (0, 1)),
  networking TEXT NOT NULL,
  secret_version INTEGER NOT NULL CHECK (secret_version >= 1),
  sealing_key TEXT,
  sealed_value BLOB,
  metadata TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  rotated_at INTEGER,
  archived_at INTEGER,
  CHECK (archived_at IS NULL OR sealed_value IS NULL)
) STRICT;

CREATE UNIQUE INDEX credentials_active_name ON credentials (vault_id, secret_name) WHERE archived_at IS NULL;
CREATE INDEX credentials_by_vault ON credentials (vault_id, seq);
CREATE INDEX credentials_archived ON credentials (vault_id, seq) WHERE archived_at IS NOT NULL;
CREATE INDEX credentials_by_key ON credentials (sealing_key, seq) WHERE sealed_value IS NOT NULL;

CREATE TABLE environments (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL,
  description TEXT,
  networking TEXT NOT NULL,
  allowed_private_cidrs TEXT NOT NULL,
  metadata TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  archived_at INTEGER
) STRICT;

CREATE INDEX environments_active ON environments (seq) WHERE archived_at IS NULL;

-- vault_ids and environment_id are the record of how a session started; they outlive what they name.
CREATE TABLE sessions (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  token_hash BLOB NOT NULL UNIQUE CHECK (length(token_hash) = 32),
  vault_ids TEXT NOT NULL,
  environment_id TEXT,
  title TEXT,
  metadata TEXT NOT NULL,
  ca_directory TEXT NOT NULL,
  mounts TEXT NOT NULL,
  warnings TEXT NOT NULL,
  denial_limit INTEGER,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  expires_at INTEGER,
  suspended_at INTEGER,
  suspension_reason TEXT,
  archived_at INTEGER
) STRICT;

CREATE INDEX sessions_active ON sessions (seq) WHERE archived_at IS NULL;
CREATE INDEX sessions_by_environment ON sessions (environment_id) WHERE archived_at IS NULL;

CREATE TABLE admin_tokens (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL,
  scope TEXT NOT NULL CHECK (scope IN ('admin', 'broker', 'auditor')),
  token_hash BLOB NOT NULL UNIQUE CHECK (length(token_hash) = 32),
  created_at INTEGER NOT NULL,
  last_used_at INTEGER,
  expires_at INTEGER
) STRICT;

CREATE TABLE emergency_stop (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  active INTEGER NOT NULL CHECK (active IN (0, 1)),
  reason TEXT
) STRICT;

INSERT INTO emergency_stop (one, active, reason) VALUES (1, 0, NULL);

CREATE TABLE settings (
  name TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Secrets of the daemon itself, such as the key of the CA.
CREATE TABLE sealed_items (
  name TEXT PRIMARY KEY,
  sealing_key TEXT NOT NULL,
  sealed_value BLOB NOT NULL
) STRICT;

-- One value that every start opens, to learn whether the master key fits.
CREATE TABLE canary (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  sealing_key TEXT NOT NULL,
  sealed_value BLOB NOT NULL
) STRICT;
