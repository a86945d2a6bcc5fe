-- Upgrade from version 1 to 5: adds strict fences and replaces the checks. Marks are preserved.
ALTER TABLE leasehold_fence ADD COLUMN strict INTEGER NOT NULL DEFAULT 0 CHECK (strict IN (0, 1));
DROP TRIGGER leasehold_mark_never_falls;
DROP TRIGGER leasehold_mark_stays;
DROP VIEW leasehold_admit;
DROP VIEW leasehold_slot;
UPDATE leasehold_schema SET version = 5;
