"""Operations that are pushed one by one, without a program: the pushed engine, its events and its memory."""
