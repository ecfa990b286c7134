-- An entry itself tells which credentials it speaks of when it is removed: an index for that costs every request a write.

DROP INDEX audit_credentials_by_sequence;
