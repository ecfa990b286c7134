-- Audit log: append only, in the order of commits. Times are milliseconds since the epoch.

CREATE TABLE audit_entries (
  sequence INTEGER PRIMARY KEY AUTOINCREMENT,
  id TEXT NOT NULL UNIQUE,
  created_at INTEGER NOT NULL,
  session_id TEXT,
  host TEXT,
  outcome TEXT,
  entry TEXT NOT NULL
) STRICT;

CREATE INDEX audit_entries_by_time ON audit_entries (created_at);
CREATE INDEX audit_entries_by_session ON audit_entries (session_id, sequence) WHERE session_id IS NOT NULL;
CREATE INDEX audit_entries_by_host ON audit_entries (host, sequence) WHERE host IS NOT NULL;
CREATE INDEX audit_entries_by_outcome ON audit_entries (outcome, sequence) WHERE outcome IN ('refused', 'failed');

-- Which entries speak of a credential.
CREATE TABLE audit_credentials (
  credential_id TEXT NOT NULL,
  sequence INTEGER NOT NULL,
  PRIMARY KEY (credential_id, sequence)
) STRICT, WITHOUT ROWID;

CREATE INDEX audit_credentials_by_sequence ON audit_credentials (sequence);

-- When each credential's value was put into a request last.
CREATE TABLE credential_uses (
  credential_id TEXT PRIMARY KEY,
  last_used_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
