-- What the first sealed fence of a database adds. Its function leasehold_verify(token, name) is registered by each connection with the keys
-- of the cluster; it returns the number of the token, or NULL if no key signed it for this name. A connection without it fails: SQLite
-- resolves the function when it prepares a statement, so such a connection claims and admits at no fence of this database (A8).
CREATE TRIGGER IF NOT EXISTS leasehold_verify_seal INSTEAD OF INSERT ON leasehold_parse BEGIN
  SELECT RAISE(ABORT, 'TOKEN_INVALID: signature: no key of this connection signed the token for this resource; pass the sealed token text of the grant')
    FROM leasehold_sealed AS s WHERE s.resource = substr(NEW.token, 31, 16) AND printf('w%08x', s.slot) = substr(NEW.token, 48, 9)
      AND leasehold_verify(NEW.token, s.name) IS NOT CAST(substr(NEW.token, 58, 19) AS INTEGER);
END;
