//! Headers of models on servers, by HTTP range requests: of a file of many gigabytes, a few hundred kilobytes are read.
//!
//! A vocabulary stands before the table of tensors and has to be walked, so that a model with a large one costs some
//! megabytes; lists of numbers are passed over. Pieces grow from 64 KiB to 2 MiB, so that this takes few requests.
//!
//! What an answer can get wrong is an [`HttpError`], never a smaller number: a server without ranges, a part that is not the
//! one asked for, an answer that ends early or is compressed, a file that changes while it is read. A redirection is followed
//! a few times and never from `https` to `http`. Names, passwords, tokens and queries stand in no text.
//!
//! ```no_run
//! use plimsoll_model::http::{Client, Options, Url, open_url};
//!
//! let url: Url = "https://example.org/models/m-00001-of-00003.gguf".parse()?;
//! let client = Client::new(Options::from_env());
//! let model = open_url(&url, &client)?;
//! println!("{} layers, {:?}", model.layer_count(), client.usage());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod answer;
mod client;
mod error;
mod remote;
mod token;
mod url;

pub use client::{Client, Options, Usage};
pub use error::HttpError;
pub(crate) use remote::OnServer;
pub use token::Token;
pub use url::{Url, UrlError};

pub use crate::spec::open_url;
