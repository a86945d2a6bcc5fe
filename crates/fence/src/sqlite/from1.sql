-- From version 1 to 2: strict places, and the checks anew. Marks stay.
ALTER TABLE leasehold_fence ADD COLUMN strict INTEGER NOT NULL DEFAULT 0 CHECK (strict IN (0, 1));
DROP VIEW leasehold_admit;
DROP VIEW leasehold_slot;
UPDATE leasehold_schema SET version = 2;
