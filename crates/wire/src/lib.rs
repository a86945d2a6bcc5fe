//! What holders and servers say to each other.
//!
//! Nothing is spoken yet. The messages (`proto/v1`) and their conversion into the core's commands and answers come with
//! the server. The bytes of token text, record and snapshot are not spoken here: the core owns them.
