//! A queue: messages go to one worker at a time, until they are done or out of attempts.
//!
//! `cargo run -p leasehold --example delivery -- send TEXT…`, `… work` (a text that begins with `bad` fails), `… dead`,
//! `… redrive ID`; the server is named by LEASEHOLD_ADDR. Kill a worker in the middle of a message: another gets it when the
//! session is over.

use std::time::Duration;

use leasehold::recipes::delivery::{Delivery, Queue, Sending};
use leasehold::{Client, Error};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let address = std::env::var("LEASEHOLD_ADDR").unwrap_or_else(|_| "127.0.0.1:7421".into());
    let client = Client::try_from(address.as_str())?;
    let queue = client.queue("examples/mail").visibility(Duration::from_secs(10));
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match &args[..] {
        ["send", texts @ ..] => {
            for text in texts {
                let how = Sending { attempts: Some(3), ..Sending::default() };
                println!("message {}", queue.send_with(text.as_bytes(), how).await?);
            }
        }
        ["work"] => loop {
            work(queue.next().await?).await?;
        },
        ["dead"] => dead(&queue).await?,
        ["redrive", id] => {
            let id = id.parse().map_err(|_| Error::config("arguments", "redrive wants the id of a dead message"))?;
            queue.redrive(id).await?;
        }
        _ => return Err(Error::config("arguments", "send TEXT…, work, dead, or redrive ID")),
    }
    client.close().await
}

async fn work(message: Delivery) -> Result<(), Error> {
    let text = String::from_utf8_lossy(message.body()).into_owned();
    println!("message {}, attempt {}, receipt {}: {text}", message.item(), message.attempt(), message.receipt());
    // For as long as this takes, however long: the message is extended meanwhile.
    let done = message.keep(async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        !text.starts_with("bad")
    });
    match done.await {
        Ok(true) => {
            message.ack().await?;
            println!("done");
        }
        Ok(false) => {
            let dead = message.nack(Duration::from_secs(1)).await?;
            println!("{}", if dead { "failed too often: dead" } else { "failed; it comes again" });
        }
        Err(error) => println!("lost: {error}"),
    }
    Ok(())
}

async fn dead(queue: &Queue) -> Result<(), Error> {
    let mut after = 0;
    loop {
        let letters = queue.dead_letters(after).await?;
        let Some(last) = letters.last() else { return Ok(()) };
        after = last.item;
        for letter in &letters {
            println!("{}: {} after {} attempts", letter.item, String::from_utf8_lossy(&letter.body), letter.attempts);
        }
    }
}
