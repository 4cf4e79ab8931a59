"""Give every request a timeout of its own; most are cancelled, which is what a wheel is good at.

Prints:
    990 answered, 10 timed out
    timers left: 0
"""

import asyncio

import aiowheel


async def ask(number: int) -> bool:
    """Answer at once, but every hundredth request never."""
    try:
        async with aiowheel.timeout(1):
            if number % 100 == 0:
                await asyncio.Event().wait()
            await asyncio.sleep(0)
    except TimeoutError:
        return False
    return True


async def main() -> None:
    """Ask a thousand times at once."""
    answers = await asyncio.gather(*[ask(number) for number in range(1_000)])
    print(f"{sum(answers)} answered, {answers.count(False)} timed out")
    print("timers left:", len(aiowheel.current_timer()))


asyncio.run(main())
