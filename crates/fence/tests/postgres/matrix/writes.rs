//! Paths into the protected table, and the statements that take them.

use super::layout::TableLayout;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteStatement {
    Insert,
    Upsert,
    Update,
    Delete,
    Merge,
    Truncate,
    Copy,
    RowMovement,
    SelectForUpdate,
}

impl WriteStatement {
    pub const ALL: [Self; 9] = [
        Self::Insert,
        Self::Upsert,
        Self::Update,
        Self::Delete,
        Self::Merge,
        Self::Truncate,
        Self::Copy,
        Self::RowMovement,
        Self::SelectForUpdate,
    ];

    pub const fn title(self) -> &'static str {
        match self {
            Self::Insert => "INSERT",
            Self::Upsert => "ON CONFLICT",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Merge => "MERGE",
            Self::Truncate => "TRUNCATE",
            Self::Copy => "COPY",
            Self::RowMovement => "row movement",
            Self::SelectForUpdate => "FOR UPDATE",
        }
    }

    /// The statement that names `table`.
    fn sql(self, table: &str) -> String {
        match self {
            Self::Insert => format!("INSERT INTO {table} (id, v, region) VALUES (2, 99, 'eu')"),
            Self::Upsert => format!(
                "INSERT INTO {table} (id, v, region) VALUES (1, 99, 'eu') ON CONFLICT (id, region) DO UPDATE SET v = 99"
            ),
            Self::Update => format!("UPDATE {table} SET v = 99 WHERE id = 1"),
            Self::Delete => format!("DELETE FROM {table} WHERE id = 1"),
            Self::Merge => {
                format!(
                    "MERGE INTO {table} AS m USING (VALUES (1)) AS s(id) ON m.id = s.id WHEN MATCHED THEN UPDATE SET v = 99"
                )
            }
            Self::Truncate => format!("TRUNCATE {table}"),
            Self::Copy => format!("COPY {table} (id, v, region) FROM PROGRAM 'printf \"2\\t99\\teu\\n\"'"),
            Self::RowMovement => format!("UPDATE {table} SET region = 'eu', id = 50 WHERE region = 'us'"),
            Self::SelectForUpdate => format!("SELECT id FROM {table} WHERE id = 1 FOR UPDATE"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritePath {
    Itself,
    Parent,
    Grandparent,
    SecondParent,
    Child,
    View,
    Rule,
    Function,
    ForeignKey,
    OtherTrigger,
    Cursor,
    Prepared,
    WithClause,
    DoBlock,
    ReplicaRole,
}

impl WritePath {
    pub const ALL: [Self; 15] = [
        Self::Itself,
        Self::Parent,
        Self::Grandparent,
        Self::SecondParent,
        Self::Child,
        Self::View,
        Self::Rule,
        Self::Function,
        Self::ForeignKey,
        Self::OtherTrigger,
        Self::Cursor,
        Self::Prepared,
        Self::WithClause,
        Self::DoBlock,
        Self::ReplicaRole,
    ];

    pub const fn title(self) -> &'static str {
        match self {
            Self::Itself => "the table",
            Self::Parent => "its parent",
            Self::Grandparent => "its grandparent",
            Self::SecondParent => "its second parent",
            Self::Child => "its child",
            Self::View => "view",
            Self::Rule => "rule",
            Self::Function => "function of the owner",
            Self::ForeignKey => "foreign key",
            Self::OtherTrigger => "trigger of another table",
            Self::Cursor => "cursor",
            Self::Prepared => "prepared statement",
            Self::WithClause => "WITH",
            Self::DoBlock => "DO",
            Self::ReplicaRole => "session_replication_role",
        }
    }

    /// The table that a statement on this path names, or why there is none.
    fn table(self, layout: TableLayout) -> Result<&'static str, &'static str> {
        use TableLayout::{Inherited, Partition, PartitionedRoot};
        match (self, layout) {
            (Self::Itself, _) => Ok("app.t"),
            (Self::Parent, Partition | Inherited) => Ok("app.parent"),
            (Self::Grandparent, Partition | Inherited) => Ok("app.root"),
            (Self::SecondParent, Inherited) => Ok("app.second"),
            (Self::Child, PartitionedRoot | Inherited) => Ok("app.kid"),
            (Self::Parent | Self::Grandparent | Self::SecondParent | Self::Child, _) => Err(NO_RELATIVE),
            (Self::View, _) => Ok("app.seen"),
            (Self::Rule, _) => Ok("app.ruled"),
            _ => Ok(layout.top()),
        }
    }

    /// The attack, or why there is none.
    pub fn attack(self, statement: WriteStatement, layout: TableLayout) -> Result<String, &'static str> {
        use WriteStatement::{Copy, Delete, Insert, Merge, RowMovement, SelectForUpdate, Truncate, Update, Upsert};
        let table = self.table(layout)?;
        let above =
            layout == TableLayout::Inherited && (table == "app.root" || table == "app.parent" || table == "app.second");
        let above = above || layout == TableLayout::Inherited && matches!(self, Self::View | Self::Rule);
        if above && matches!(statement, Insert | Upsert | Copy) {
            return Err(PARENT_ROWS);
        }
        if statement == RowMovement
            && (!matches!(layout, TableLayout::Partition | TableLayout::PartitionedRoot) || table != layout.top())
        {
            return Err(NO_MOVEMENT);
        }
        if statement == Upsert && self == Self::Child && layout == TableLayout::Inherited {
            return Err(NO_INDEX);
        }
        let sql = statement.sql(table);
        let quoted = sql.replace('\'', "''");
        match (self, statement) {
            (Self::View, Merge | Truncate | Copy) | (Self::Rule, Merge | Upsert) => Err(NOT_ON_VIEWS),
            (Self::Rule, Copy | Truncate | SelectForUpdate) => Err(RULED_ROWS),
            (Self::ForeignKey, Delete) => Ok("DELETE FROM app.referenced".to_owned()),
            (Self::ForeignKey, Update) => Ok("UPDATE app.referenced SET id = 2".to_owned()),
            (Self::ForeignKey, Truncate) => Ok("TRUNCATE app.referenced CASCADE".to_owned()),
            (Self::ForeignKey, _) => Err(NOT_BY_KEYS),
            (Self::Function, _) => Ok(format!("SELECT app.run('{quoted}')")),
            (Self::OtherTrigger, _) => Ok(format!("INSERT INTO app.other VALUES ('{quoted}')")),
            (Self::DoBlock, _) => Ok(format!("DO $do$ BEGIN EXECUTE '{quoted}'; END $do$")),
            (Self::Cursor, Update | Delete) => {
                let at = sql.replace("WHERE id = 1", "WHERE CURRENT OF c");
                Ok(format!(
                    "DECLARE c CURSOR FOR SELECT * FROM {table} WHERE id = 1 FOR UPDATE; FETCH c; {at}; CLOSE c"
                ))
            }
            (Self::Cursor, _) => Err(NOT_BY_CURSOR),
            (Self::Prepared, Truncate | Copy) | (Self::WithClause, Truncate | Copy | Merge | SelectForUpdate) => {
                Err(NOT_NESTED)
            }
            (Self::Prepared, _) => Ok(format!("DEALLOCATE ALL; PREPARE late AS {sql}; EXECUTE late")),
            (Self::WithClause, _) => Ok(format!("WITH w AS ({sql} RETURNING id) SELECT * FROM w")),
            (Self::ReplicaRole, _) => Ok(format!("SET LOCAL session_replication_role = replica; {sql}")),
            _ => Ok(sql),
        }
    }
}

const NO_RELATIVE: &str = "the layout has no such table";
const PARENT_ROWS: &str = "an inheritance parent stores these rows itself";
const NO_MOVEMENT: &str = "rows move only between partitions, through a partitioned table";
const NO_INDEX: &str = "an inheritance child has no unique index of its parent";
const NOT_ON_VIEWS: &str = "PostgreSQL 15 does not allow it on a view or on a table with rules";
const RULED_ROWS: &str = "it affects only the rows of the table with the rule";
const NOT_BY_KEYS: &str = "a foreign key acts on DELETE, UPDATE and TRUNCATE CASCADE";
const NOT_BY_CURSOR: &str = "WHERE CURRENT OF exists for UPDATE and DELETE";
const NOT_NESTED: &str = "the syntax does not exist";

/// Reasons for cells without an attack, in the order of their footnotes.
pub const REASONS: [&str; 9] =
    [NO_RELATIVE, PARENT_ROWS, NO_MOVEMENT, NO_INDEX, NOT_ON_VIEWS, RULED_ROWS, NOT_BY_KEYS, NOT_BY_CURSOR, NOT_NESTED];
