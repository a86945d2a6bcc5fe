-- Upgrade from version 3 to 5: adds sealed fences, replaces the checks of admissions, and ends those that outlived their transaction.
-- Marks are preserved.
DROP TRIGGER leasehold_reject_empty_insert;
DROP TRIGGER leasehold_on_parse;
DROP VIEW leasehold_check;
DROP TABLE leasehold_admission;
DELETE FROM leasehold_empty;
UPDATE leasehold_schema SET version = 5;
